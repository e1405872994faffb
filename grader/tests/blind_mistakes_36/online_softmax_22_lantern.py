# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax over rows and its gradient. A program owns a tile: many narrow rows, or one wide row, chunk by chunk."""

import torch
import triton
import triton.language as tl

TILE = 8192  # elements of a tile, rows times columns
MOST_ROWS = 16


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists = rows < n_rows
    x_rows = x_ptr + rows[:, None] * stride_x
    y_rows = y_ptr + rows[:, None] * stride_y
    lanes = tl.arange(0, COLS)[None, :]

    top = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    for first in range(0, n_cols, COLS):
        inside = exists[:, None] & (first + lanes < n_cols)
        x = tl.load(x_rows + first + lanes, mask=inside, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(x, axis=1))
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp(top - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        top = higher

    # Rows behind the last one have seen nothing: give them numbers that make no NaN.
    top = tl.where(exists, top, 0.0)
    total = tl.where(exists, total, 1.0)
    for first in range(0, n_cols, COLS):
        inside = exists[:, None] & (first + lanes < n_cols)
        x = tl.load(x_rows + first + lanes, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - top[:, None]) / total[:, None]
        tl.store(y_rows + first + lanes, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists = rows < n_rows
    dy_rows = dy_ptr + rows[:, None] * stride_dy
    y_rows = y_ptr + rows[:, None] * stride_y
    dx_rows = dx_ptr + rows[:, None] * stride_dx
    lanes = tl.arange(0, COLS)[None, :]

    # One partial sum for each lane of the tile; they meet once, behind the loop.
    partial = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for first in range(0, n_cols, COLS):
        inside = exists[:, None] & (first + lanes < n_cols)
        dy = tl.load(dy_rows + first + lanes, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_rows + first + lanes, mask=inside, other=0.0).to(tl.float32)
        partial += dy * y
    dot = tl.sum(partial, axis=1)[:, None]

    for first in range(0, n_cols, COLS):
        inside = exists[:, None] & (first + lanes < n_cols)
        dy = tl.load(dy_rows + first + lanes, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_rows + first + lanes, mask=inside, other=0.0).to(tl.float32)
        dx = (dy - dot) * y
        tl.store(dx_rows + first + lanes, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def tile_of(n_cols: int):
    """Rows and columns of a tile, both powers of two."""
    cols = min(triton.next_power_of_2(n_cols), TILE)
    return min(TILE // cols, MOST_ROWS), cols


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; rows of x and `out` may be any number of elements apart."""
    y = x.new_empty(x.shape) if out is None else out
    n_rows, n_cols = x.shape
    rows, cols = tile_of(n_cols)
    online_softmax_kernel[(triton.cdiv(n_rows, rows),)](
        x, y, n_rows, n_cols, x.stride(0), y.stride(0), ROWS=rows, COLS=cols, num_warps=8
    )
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input, from the incoming gradient dy and the forward result y."""
    dx = dy.new_empty(dy.shape) if out is None else out
    n_rows, n_cols = dy.shape
    rows, cols = tile_of(n_cols)
    softmax_backward_kernel[(triton.cdiv(n_rows, rows),)](
        dy,
        y,
        dx,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        dx.stride(0),
        ROWS=rows,
        COLS=cols,
        num_warps=16,
    )
    return dx


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        if dy.stride(1) != 1:
            dy = dy.contiguous()
        return softmax_backward(dy, ctx.saved_tensors[0])


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
