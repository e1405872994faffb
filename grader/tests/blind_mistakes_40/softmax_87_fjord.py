# labs/lab4_production_slice/softmax.py | right | Exercises fused_softmax_backward and fused_softmax (and the forward). Unusual: two-dimensional tiles with several short rows for a program, a maximum and a sum for each place of the tile, joined by `tl.reduce` over pairs with its own combine function, own tile loads with masks for rows and columns, and a second sweep that goes backwards through the blocks.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import block_of, on
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
WIDTH = 4096  # numbers of a tile at most
TALLEST = 16  # rows of a tile at most
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (8, 16)]  # 16 numbers of a tile for each thread


def tile_of(n_cols: int) -> tuple[int, int]:
    """Return rows and columns of a tile: several short rows, or a part of a long one."""
    width = min(block_of(n_cols), WIDTH)
    return max(1, min(TALLEST, WIDTH // 2 // width)), width


@triton.jit
def joined(top, total, other_top, other_total):
    """The maximum and the sum of two parts of a row, from those of each part."""
    higher = tl.maximum(top, other_top)
    return higher, total * tl.exp(top - higher) + other_total * tl.exp(other_top - higher)


@triton.jit
def tile_load(ptr, rows, cols, stride, n_rows, n_cols, other):
    """A tile in fp32, and `other` where the matrix has no such row or column."""
    inside = (rows < n_rows) & (cols < n_cols)
    return tl.load(ptr + rows * stride + cols, mask=inside, other=other).to(tl.float32)


@triton.jit
def tile_store(ptr, rows, cols, stride, n_rows, n_cols, values):
    """Store a tile, rounded to the dtype of the matrix."""
    inside = (rows < n_rows) & (cols < n_cols)
    tl.store(ptr + rows * stride + cols, values.to(ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def softmax_kernel(
    x_ptr, y_ptr, n_rows, stride_x, stride_y, N_COLS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i has ROWS rows.

    Every place of the tile has a maximum and a sum. The second sweep begins with the block that was read last.
    """
    rows = (tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)[:, None]).to(tl.int64)
    lanes = tl.arange(0, BLOCK)[None, :]
    BLOCKS: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK
    tops = tl.full((ROWS, BLOCK), LOWEST, tl.float32)
    totals = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for block in range(0, BLOCKS):
        x = tile_load(x_ptr, rows, block * BLOCK + lanes, stride_x, n_rows, N_COLS, float("-inf"))
        tops, totals = joined(tops, totals, tl.maximum(x, LOWEST), tl.where(x == float("-inf"), 0.0, 1.0))
    top, total = tl.reduce((tops, totals), 1, joined)
    top = top[:, None]
    total = tl.where(rows < n_rows, total[:, None], 1.0)
    for block in range(0, BLOCKS):
        cols = (BLOCKS - 1 - block) * BLOCK + lanes
        x = tile_load(x_ptr, rows, cols, stride_x, n_rows, N_COLS, float("-inf"))
        tile_store(y_ptr, rows, cols, stride_y, n_rows, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    height, width = tile_of(n_cols)
    launch = on(softmax_kernel, x)[(triton.cdiv(n_rows, height),)]
    launch(x, out, n_rows, x.stride(0), out.stride(0), N_COLS=n_cols, ROWS=height, BLOCK=width)
    return out


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    stride_dy,
    stride_y,
    stride_dx,
    N_COLS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx = y * (dy - sum(y * dy)) for matrices of one dtype; program i has ROWS rows."""
    rows = (tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)[:, None]).to(tl.int64)
    lanes = tl.arange(0, BLOCK)[None, :]
    BLOCKS: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK
    weighted = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for block in range(0, BLOCKS):
        cols = block * BLOCK + lanes
        y = tile_load(y_ptr, rows, cols, stride_y, n_rows, N_COLS, 0.0)
        dy = tile_load(dy_ptr, rows, cols, stride_dy, n_rows, N_COLS, 0.0)
        weighted += y * dy
    products = tl.sum(weighted, axis=1, keep_dims=True)
    for block in range(0, BLOCKS):
        cols = (BLOCKS - 1 - block) * BLOCK + lanes
        y = tile_load(y_ptr, rows, cols, stride_y, n_rows, N_COLS, 0.0)
        dy = tile_load(dy_ptr, rows, cols, stride_dy, n_rows, N_COLS, 0.0)
        tile_store(dx_ptr, rows, cols, stride_dx, n_rows, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    height, width = tile_of(n_cols)
    launch = on(gradient_kernel, dy)[(triton.cdiv(n_rows, height),)]
    strides = dy.stride(0), y.stride(0), out.stride(0)
    launch(dy, y, out, n_rows, *strides, N_COLS=n_cols, ROWS=height, BLOCK=width)
    return out


@triton_op("course::fused_softmax", mutates_args=())
def forward_op(x: torch.Tensor) -> torch.Tensor:
    """fused_softmax_forward as an operator that torch.compile can look into."""
    return fused_softmax_forward(x)


@triton_op("course::fused_softmax_backward", mutates_args=())
def backward_op(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """fused_softmax_backward, likewise."""
    return fused_softmax_backward(dy, y)


class FusedSoftmax(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x):
        """Return y for x."""
        y = forward_op(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy."""
        y = ctx.saved_tensors[0]
        return backward_op(dy.contiguous(), y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
