# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Persistent programs with the tiles in the order of a snake (every second band from right to left), sums that start at the bias instead of adding it at the end, and K in a loop without a mask for whole blocks plus one masked tail. Nothing is wrong.
"""Persistent matrix product: tiles in the order of a snake, sums that start at the bias, K with a tail."""

import torch
import triton
import triton.language as tl

PROGRAMS = 264
SIZES = (
    # rows, columns, depth, stages, warps
    (128, 256, 32, 4, 8),
    (256, 128, 32, 4, 8),
    (128, 128, 64, 3, 8),
    (128, 64, 64, 3, 4),
    (64, 128, 64, 3, 4),
    (64, 64, 32, 3, 4),
)
CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_stages=stages, num_warps=warps)
    for m, n, k, stages, warps in SIZES
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; where there are no tensor cores, for fp32, small ones."""
    size = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        size = min(size, 64)
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def snake(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and column of a tile.

    Bands of GROUP_M rows of tiles are walked column by column, every second band from right to left: it
    begins at the columns of b that the band above has just used.
    """
    across = tl.cdiv(N, BLOCK_N)
    band = tile // (GROUP_M * across)
    within = tile % (GROUP_M * across)
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - band * GROUP_M, GROUP_M)
    column = within // height
    column += band % 2 * (across - 1 - 2 * column)
    return (band * GROUP_M + within % height) * BLOCK_M, column * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def snake_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias), for every num_programs-th tile of c."""
    ks = tl.arange(0, BLOCK_K)
    rest = K % BLOCK_K
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(axis=0), tiles, tl.num_programs(axis=0)):
        m, n = snake(tile, M, N, BLOCK_M, BLOCK_N, 8)
        rows = m + tl.arange(0, BLOCK_M).to(tl.int64)
        cols = n + tl.arange(0, BLOCK_N).to(tl.int64)
        row_exists = rows[:, None] < M
        col_exists = cols[None, :] < N
        a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
        b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        if BIAS_RELU:
            # A sum may begin anywhere: from here on the bias is part of it.
            acc += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
        for _ in range(K // BLOCK_K):
            a = tl.load(a_ptrs, mask=row_exists, other=0.0)
            b = tl.load(b_ptrs, mask=col_exists, other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
            a_ptrs += BLOCK_K * stride_ak
            b_ptrs += BLOCK_K * stride_bk
        if rest > 0:
            a_tail = tl.load(a_ptrs, mask=row_exists & (ks[None, :] < rest), other=0.0)
            b_tail = tl.load(b_ptrs, mask=col_exists & (ks[:, None] < rest), other=0.0)
            acc = tl.dot(a_tail, b_tail, acc, input_precision="ieee")
        if BIAS_RELU:
            acc = tl.maximum(acc, 0.0)
        c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_exists & col_exists)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    grid = lambda meta: (min(PROGRAMS, tiles(meta)),)  # noqa: E731
    snake_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
