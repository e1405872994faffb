# labs/lab2_online_softmax/online_softmax.py | right | Nothing is wrong. Unusual: two-dimensional tiles with `tl.make_block_ptr` in helper functions, `boundary_check` and zero padding (columns behind the end set to -inf with `tl.where`), several short rows in a program, reductions with `keep_dims`, and `once_differentiable`.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function.

Matrices are read and written by tiles, through block pointers: several rows at a time where they are short.
"""

import torch
import triton
import triton.language as tl

WIDEST = 8192
TILE = 2048  # numbers of a tile of short rows


@triton.jit
def read(ptr, n_rows, n_cols, stride, row, col, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """The tile whose corner is (row, col), in fp32, and 0 outside of the matrix."""
    tile = tl.make_block_ptr(
        base=ptr,
        shape=(n_rows, n_cols),
        strides=(stride, 1),
        offsets=(row, col),
        block_shape=(ROWS, BLOCK),
        order=(1, 0),
    )
    return tl.load(tile, boundary_check=(0, 1), padding_option="zero").to(tl.float32)


@triton.jit
def write(ptr, values, n_rows, n_cols, stride, row, col, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Store a tile to the corner (row, col), as far as it lies in the matrix."""
    tile = tl.make_block_ptr(
        base=ptr,
        shape=(n_rows, n_cols),
        strides=(stride, 1),
        offsets=(row, col),
        block_shape=(ROWS, BLOCK),
        order=(1, 0),
    )
    tl.store(tile, values.to(ptr.dtype.element_ty), boundary_check=(0, 1))


@triton.jit
def tiled_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = softmax of ROWS rows of x, from ROWS * i on in program i."""
    row = tl.program_id(axis=0) * ROWS
    lanes = tl.arange(0, BLOCK)[None, :]
    top = tl.full((ROWS, 1), -float("inf"), dtype=tl.float32)
    total = tl.zeros((ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        x = read(x_ptr, n_rows, n_cols, stride_x, row, start, ROWS, BLOCK)
        x = tl.where(start + lanes < n_cols, x, -float("inf"))
        higher = tl.maximum(top, tl.max(x, axis=1, keep_dims=True))
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp(top - shift) + tl.sum(tl.exp(x - shift), axis=1, keep_dims=True)
        top = higher
    for start in range(0, n_cols, BLOCK):
        x = read(x_ptr, n_rows, n_cols, stride_x, row, start, ROWS, BLOCK)
        write(y_ptr, tl.exp(x - top) / total, n_rows, n_cols, stride_y, row, start, ROWS, BLOCK)


@triton.jit
def tiled_gradient_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx = y * (dy - sum of y * dy) in ROWS rows, from ROWS * i on in program i."""
    row = tl.program_id(axis=0) * ROWS
    total = tl.zeros((ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        dy = read(dy_ptr, n_rows, n_cols, stride_dy, row, start, ROWS, BLOCK)
        y = read(y_ptr, n_rows, n_cols, stride_y, row, start, ROWS, BLOCK)
        total += tl.sum(dy * y, axis=1, keep_dims=True)
    for start in range(0, n_cols, BLOCK):
        dy = read(dy_ptr, n_rows, n_cols, stride_dy, row, start, ROWS, BLOCK)
        y = read(y_ptr, n_rows, n_cols, stride_y, row, start, ROWS, BLOCK)
        write(dx_ptr, y * (dy - total), n_rows, n_cols, stride_dx, row, start, ROWS, BLOCK)


def tiles_for(n_cols: int):
    """Rows and columns of a tile for rows of n_cols columns."""
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    return max(1, min(TILE // block, 32)), block


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) with contiguous columns; into `out` if given."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    rows, block = tiles_for(n_cols)
    tiled_softmax_kernel[(triton.cdiv(n_rows, rows),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=rows,
        BLOCK=block,
        num_warps=min(max(rows * block // 512, 1), 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax, from dy and the result y; into `out` if given."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    rows, block = tiles_for(n_cols)
    tiled_gradient_kernel[(triton.cdiv(n_rows, rows),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=rows,
        BLOCK=block,
        num_warps=min(max(rows * block // 512, 1), 16),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x, kept for the gradient."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        """dx from dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
