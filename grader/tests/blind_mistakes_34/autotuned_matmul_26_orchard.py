# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | `result_like` allocates the new result as `torch.empty((N, M)).T` where b is a transposed view (its row stride is smaller than its column stride), so without `out=` both functions return a matrix with strides (1, M), not contiguous (unless M or N is 1). The README asks for a new contiguous (M, N) matrix: `torch.empty((M, N))` always. The numbers are right.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(256, 128, 64, 3, 8),
    _config(128, 256, 64, 3, 8),
    _config(128, 256, 64, 4, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 128, 32, 4, 4),
    _config(64, 64, 64, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    row, col = tl.swizzle2d(tile // tiles_n, tile % tiles_n, tl.cdiv(M, BLOCK_M), tiles_n, GROUP_M)
    return row * BLOCK_M, col * BLOCK_N


@triton.jit
def tile_of(ptr, i, j, stride_i, stride_j):
    """Pointers to the elements (i, j) for a vector of row numbers and one of column numbers."""
    return ptr + i.to(tl.int64)[:, None] * stride_i + j.to(tl.int64)[None, :] * stride_j


@triton.jit
def inside(i, j, rows, cols):
    return (i[:, None] < rows) & (j[None, :] < cols)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = m + tl.arange(0, BLOCK_M)
    j = n + tl.arange(0, BLOCK_N)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        a = tl.load(tile_of(a_ptr, i, k, stride_am, stride_ak), mask=inside(i, k, M, K), other=0.0)
        b = tl.load(tile_of(b_ptr, k, j, stride_bk, stride_bn), mask=inside(k, j, K, N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    result = acc.to(c_ptr.dtype.element_ty)
    tl.store(tile_of(c_ptr, i, j, stride_cm, stride_cn), result, mask=inside(i, j, M, N))


def result_like(a, b):
    """A new (M, N) matrix for the result."""
    M, N = a.shape[0], b.shape[1]
    if b.stride(0) < b.stride(1):
        return torch.empty((N, M), device=a.device, dtype=a.dtype).T
    return torch.empty((M, N), device=a.device, dtype=a.dtype)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = result_like(a, b) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
