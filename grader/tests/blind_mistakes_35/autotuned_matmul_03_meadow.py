# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product tile by tile. Where the result is small and K long, several programs share K.

They leave their sums in a workspace of one layer each, and a second kernel adds the layers in a fixed order.
"""

import torch
import triton
import triton.language as tl

SLICES = 8
SMALL_RESULT = 65536  # elements: fewer tiles than a GPU has room for
LONG_K = 1024
FINISH_BLOCK = 1024


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(128, 128, 32, 4, 4),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 64, 4, 4),
    _config(32, 32, 64, 4, 2),
]


def fitting(configs, named_args, **kwargs):
    """Tiles that fit in the result; fp32 has no tensor cores, and wants small ones."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = (tile // in_group) * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_layer, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, LAYERS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Every LAYERS-th step along K of one tile; c is the result, or the workspace of partial sums."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn
    layer = c_ptr
    first = 0
    if LAYERS > 1:
        first = tl.program_id(axis=1) * BLOCK_K
        layer = c_ptr + tl.program_id(axis=1) * stride_layer

    tl.assume(K > 0)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(first, K, LAYERS * BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        a = tl.load(a_rows + ks[None, :] * stride_ak, mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0)
        b = tl.load(b_cols + ks[:, None] * stride_bk, mask=(ks[:, None] < K) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    where = layer + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(where, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def finish_kernel(
    layers_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, LAYERS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The sum of the layers, with the epilogue."""
    i = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    exists = i < M * N
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for layer in tl.static_range(LAYERS):
        total += tl.load(layers_ptr + layer * M * N + i, mask=exists, other=0.0)
    row = (i // N).to(tl.int64)
    col = (i % N).to(tl.int64)
    if BIAS_RELU:
        total = tl.maximum(total + tl.load(bias_ptr + col, mask=exists, other=0.0).to(tl.float32), 0.0)
    tl.store(c_ptr + row * stride_cm + col * stride_cn, total.to(c_ptr.dtype.element_ty), mask=exists)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    shared = M * N <= SMALL_RESULT and K >= LONG_K
    layers = SLICES if shared else 1
    target = out
    if shared:
        target = torch.empty((layers * M, N), device=a.device, dtype=torch.float32)

    def grid(meta):
        return triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), layers

    matmul_kernel[grid](
        a, b, target, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1),
        M * N if shared else 0, target.stride(0), target.stride(1),
        BIAS_RELU=bias_relu and not shared, LAYERS=layers,
    )  # fmt: skip
    if shared:
        finish_kernel[(triton.cdiv(M * N, FINISH_BLOCK),)](
            target, out, bias, M, N, out.stride(0), out.stride(1),
            BIAS_RELU=bias_relu, LAYERS=layers, BLOCK=FINISH_BLOCK,
        )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, summed in fp32 and rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), rounded once."""
    return _launch(a, b, bias, out, bias_relu=True)
