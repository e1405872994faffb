# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In `product_kernel`, `tl.dot(x, tl.reshape(y, (BLOCK_K, BLOCK_N)), acc, ...)`: the tile of B is loaded as (BLOCK_N, BLOCK_K), and reshape keeps the row-major order of its elements instead of exchanging the axes; it should be `tl.trans(y)`. Wrong in all cases of matmul and matmul_bias_relu except 1 x 1 x 1.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl

# BLOCK_M, BLOCK_N, BLOCK_K, stages, warps; the last one is for small results and for fp32.
SHAPES = (
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 4, 8),
    (64, 128, 64, 4, 4),
    (64, 64, 32, 4, 4),
)
CONFIGS = [
    triton.Config(
        {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8}, num_stages=stages, num_warps=warps
    )
    for bm, bn, bk, stages, warps in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and small ones for fp32, which has no tensor cores."""
    widest = 64 if named_args["x_ptr"].dtype == torch.float32 else 256
    limit = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= limit]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile of the result: groups of GROUP_M rows of tiles, column by column."""
    wide = tl.cdiv(N, BLOCK_N)
    tall = tl.cdiv(M, BLOCK_M)
    in_group = GROUP_M * wide
    first = tile // in_group * GROUP_M
    height = tl.minimum(tall - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def strip(ptr, line, stride_line, stride_k, BLOCK_K: tl.constexpr):
    """Pointers to the first BLOCK_K numbers of some lines (rows of x, columns of y), one line below the other."""
    along = tl.arange(0, BLOCK_K)
    return ptr + line[:, None] * stride_line + along[None, :] * stride_k


@triton.jit
def lines(ptrs, exists, left, BLOCK_K: tl.constexpr):
    """What of these lines lies inside of the matrix, and 0 elsewhere."""
    inside = exists[:, None] & (tl.arange(0, BLOCK_K)[None, :] < left)
    return tl.load(ptrs, mask=inside, other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def product_kernel(
    x_ptr, y_ptr, z_ptr, bias_ptr, M, N, K,
    stride_xm, stride_xk, stride_yk, stride_yn, stride_zm, stride_zn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """z = x @ y, or relu(x @ y + bias). Both operands are fetched line by line, with K along the second axis."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    row = m + tl.arange(0, BLOCK_M).to(tl.int64)
    col = n + tl.arange(0, BLOCK_N).to(tl.int64)
    row_exists = row < M
    col_exists = col < N
    x_ptrs = strip(x_ptr, row, stride_xm, stride_xk, BLOCK_K)
    y_ptrs = strip(y_ptr, col, stride_yn, stride_yk, BLOCK_K)

    tl.assume(K > 0)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        x = lines(x_ptrs, row_exists, K - k, BLOCK_K)
        y = lines(y_ptrs, col_exists, K - k, BLOCK_K)
        acc = tl.dot(x, tl.reshape(y, (BLOCK_K, BLOCK_N)), acc, input_precision="ieee")
        x_ptrs += BLOCK_K * stride_xk
        y_ptrs += BLOCK_K * stride_yk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + col, mask=col_exists, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    z_ptrs = z_ptr + row[:, None] * stride_zm + col[None, :] * stride_zn
    tl.store(z_ptrs, acc.to(z_ptr.dtype.element_ty), mask=row_exists[:, None] & col_exists[None, :])


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    product_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
