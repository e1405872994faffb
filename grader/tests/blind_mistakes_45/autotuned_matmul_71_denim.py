# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | `col = tl.where(group % 2 == 0, col, tiles_n - col)` in `snake`: should be `tiles_n - 1 - col`. In odd groups tile column 0 is never computed (unwritten) and a tile column past the end is, fully masked. Shows in both functions only where there are more than GROUP_M = 4 rows of tiles (M > 4 * BLOCK_M, so M > 256 with 64-row tiles, M > 512 with 128-row ones: 521 x 389, 517 x 3, 1031 x 1027, 1024 x 1024).
"""Autotuned matrix product; groups of tile rows are walked forth and back like a snake."""

import torch
import triton
import triton.language as tl

# BLOCK_M, BLOCK_N, BLOCK_K, stages, warps; the last one serves small results.
SHAPES = (
    (128, 256, 64, 3, 8),
    (128, 256, 64, 4, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 4, 8),
    (64, 128, 64, 4, 4),
    (64, 64, 32, 4, 4),
)
CONFIGS = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 4}, num_stages=stages, num_warps=warps)
    for bm, bn, bk, stages, warps in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """Leave out tiles larger than the result, and large ones for fp32."""
    smaller_side = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        smaller_side = min(smaller_side, 64)
    fit = [c for c in configs if c.kwargs["BLOCK_M"] <= smaller_side and c.kwargs["BLOCK_N"] <= smaller_side]
    return fit if fit else configs[-1:]


@triton.jit
def snake(tile, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """Row and column, counted in tiles, of tile number `tile`.

    A group has GROUP_M rows of tiles, walked column by column. Even groups go from left to right, odd ones
    from right to left, so that a group begins with the columns of b that the one before has just read.
    """
    in_group = GROUP_M * tiles_n
    group = tile // in_group
    first = group * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = tile - group * in_group
    row = first + within % height
    col = within // height
    col = tl.where(group % 2 == 0, col, tiles_n - col)
    return row, col


@triton.jit
def bias_relu(acc, bias_ptr, cols, N):
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
    return tl.maximum(acc + bias.to(tl.float32)[None, :], 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    row, col = snake(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    rows = row * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = col * BLOCK_N + tl.arange(0, BLOCK_N)
    rows_there = (rows < M)[:, None]
    cols_there = (cols < N)[None, :]
    far_rows = rows.to(tl.int64)[:, None]
    far_cols = cols.to(tl.int64)[None, :]

    a_rows = a_ptr + far_rows * stride_am
    b_cols = b_ptr + far_cols * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    tl.assume(K > 0)
    for step in range(tl.cdiv(K, BLOCK_K)):
        ks = step * BLOCK_K + tl.arange(0, BLOCK_K)
        left = tl.load(a_rows + ks[None, :] * stride_ak, mask=rows_there & (ks < K)[None, :], other=0.0)
        right = tl.load(b_cols + ks[:, None] * stride_bk, mask=cols_there & (ks < K)[:, None], other=0.0)
        acc = tl.dot(left, right, acc, input_precision="ieee")

    if BIAS_RELU:
        acc = bias_relu(acc, bias_ptr, cols, N)

    where = c_ptr + far_rows * stride_cm + far_cols * stride_cn
    tl.store(where, acc.to(c_ptr.dtype.element_ty), mask=rows_there & cols_there)


def _run(a, b, bias, out, with_epilogue):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), dtype=a.dtype, device=a.device)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](
        a, b, out, bias,
        M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=with_epilogue,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b in the dtype of a; fp32 sums, rounded once."""
    return _run(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), the epilogue still in fp32."""
    return _run(a, b, bias, out, True)
