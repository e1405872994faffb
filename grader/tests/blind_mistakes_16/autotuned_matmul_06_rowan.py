# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | Without out, result_like allocates an (N, M) tensor and returns its transposed view: the values and the shape are right, but the result is not contiguous. It should be torch.empty((M, N), ...).
"""Matrix product with bias and ReLU, one program for each tile."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(256, 128, 64, 3, 8),
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 32, 4, 8),
    _config(64, 64, 64, 3, 4),
    _config(64, 32, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Triton's own swizzle would do as well; this one is by hand."""
    rows = tl.cdiv(M, BLOCK_M)
    columns = tl.cdiv(N, BLOCK_N)
    band = tile // (GROUP_M * columns)
    inside = tile - band * GROUP_M * columns
    height = tl.minimum(rows - band * GROUP_M, GROUP_M)
    return (band * GROUP_M + inside % height) * BLOCK_M, inside // height * BLOCK_N


@triton.jit
def fetch(base, lines, line_limit, line_stride, ks, k_limit, k_stride):
    """A block of A, or of B transposed: a line along the first axis, K along the second, 0 outside."""
    where = base + lines[:, None] * line_stride + ks[None, :] * k_stride
    return tl.load(where, mask=(lines[:, None] < line_limit) & (ks[None, :] < k_limit), other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = fetch(a_ptr, rows, M, stride_am, ks + k, K, stride_ak)
        bt = fetch(b_ptr, cols, N, stride_bn, ks + k, K, stride_bk)
        acc = tl.dot(a, tl.trans(bt), acc, input_precision="ieee")
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


def result_like(a, b):
    """Room for a @ b."""
    shape = (b.shape[1], a.shape[0])
    return torch.empty(shape, device=a.device, dtype=a.dtype).t()


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = result_like(a, b) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1), BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N)."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
