# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) partial_step: the tile of b in the last, partial step is loaded at b_at + k * stride_ak instead of b_at + k * stride_bk, so the tail of K meets wrong rows of b (or addresses outside it); shows in both functions where K > BLOCK_K, K is no multiple of BLOCK_K and the strides of a and b along K differ; (2) matmul_kernel, BIAS_RELU: the bias is loaded at bias_ptr + col_lanes without n, so every tile gets the first BLOCK_N biases; shows in matmul_bias_relu where N > BLOCK_N, from the second tile of columns on; should be bias_ptr + n + col_lanes (that is bias_ptr + cols)
"""Matrix product whose main loop needs no mask along K; what K leaves over is a step of its own."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 32, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(N, BLOCK_N)
    members = GROUP_M * tiles_n
    top = tile // members * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - top, GROUP_M)
    member = tile % members
    return (top + member % height) * BLOCK_M, member // height * BLOCK_N


@triton.jit
def whole_step(acc, a_at, b_at, row_in, col_in, k, stride_ak, stride_bk):
    """acc plus the products of BLOCK_K numbers along K, all of which exist."""
    x = tl.load(a_at + k * stride_ak, mask=row_in, other=0.0)
    y = tl.load(b_at + k * stride_bk, mask=col_in, other=0.0)
    return tl.dot(x, y, acc, input_precision="ieee")


@triton.jit
def partial_step(acc, a_at, b_at, row_in, col_in, k, K, stride_ak, stride_bk, BLOCK_K: tl.constexpr):
    """The same for the last numbers along K, of which K - k exist."""
    lanes = tl.arange(0, BLOCK_K)
    exists = lanes < K - k
    x = tl.load(a_at + k * stride_ak, mask=row_in & exists[None, :], other=0.0)
    y = tl.load(b_at + k * stride_ak, mask=exists[:, None] & col_in, other=0.0)
    return tl.dot(x, y, acc, input_precision="ieee")


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    row_lanes = tl.arange(0, BLOCK_M)
    col_lanes = tl.arange(0, BLOCK_N)
    k_lanes = tl.arange(0, BLOCK_K)
    rows = (m + row_lanes).to(tl.int64)
    cols = (n + col_lanes).to(tl.int64)
    row_in = rows[:, None] < M
    col_in = cols[None, :] < N
    a_at = a_ptr + rows[:, None] * stride_am + k_lanes[None, :] * stride_ak
    b_at = b_ptr + k_lanes[:, None] * stride_bk + cols[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    whole = K // BLOCK_K * BLOCK_K
    for k in range(0, whole, BLOCK_K):
        acc = whole_step(acc, a_at, b_at, row_in, col_in, k, stride_ak, stride_bk)
    if whole < K:
        acc = partial_step(acc, a_at, b_at, row_in, col_in, whole, K, stride_ak, stride_bk, BLOCK_K)

    if BIAS_RELU:
        bias = tl.load(bias_ptr + col_lanes, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_at = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=row_in & col_in)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
