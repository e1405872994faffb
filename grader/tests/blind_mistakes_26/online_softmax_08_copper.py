# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax by tiles: several short rows, or a piece of one long row, at a time. The second sweep runs backwards."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384  # the widest tile, of one row
BACKWARD_BLOCK = 8192
SHORT = 2048  # elements of a tile that several short rows share


@triton.jit
def tile(rows_ptr, there, cols, n_cols, other):
    """A tile in fp32 from a column of row pointers; `other` where there is no such row or column."""
    inside = there[:, None] & (cols < n_cols)[None, :]
    return tl.load(rows_ptr + cols[None, :], mask=inside, other=other).to(tl.float32)


@triton.jit
def put(rows_ptr, there, cols, n_cols, values):
    inside = there[:, None] & (cols < n_cols)[None, :]
    tl.store(rows_ptr + cols[None, :], values.to(rows_ptr.dtype.element_ty), mask=inside)


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
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = rows < n_rows
    x_rows = x_ptr + (rows * stride_x)[:, None]
    y_rows = y_ptr + (rows * stride_y)[:, None]

    m = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        x = tile(x_rows, there, start + tl.arange(0, COLS), n_cols, -float("inf"))
        higher = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(higher > -float("inf"), higher, 0.0)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = higher
    # Rows that are not there: finite numbers, which nobody stores.
    m = tl.where(there, m, 0.0)
    d = tl.where(there, d, 1.0)

    # The blocks that were read last are the ones most likely still in the cache.
    last = (n_cols - 1) // COLS * COLS
    for back in range(0, n_cols, COLS):
        cols = last - back + tl.arange(0, COLS)
        x = tile(x_rows, there, cols, n_cols, -float("inf"))
        put(y_rows, there, cols, n_cols, tl.exp(x - m[:, None]) / d[:, None])


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
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = rows < n_rows
    dy_rows = dy_ptr + (rows * stride_dy)[:, None]
    y_rows = y_ptr + (rows * stride_y)[:, None]
    dx_rows = dx_ptr + (rows * stride_dx)[:, None]

    s = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        dy = tile(dy_rows, there, cols, n_cols, 0.0)
        y = tile(y_rows, there, cols, n_cols, 0.0)
        s += tl.sum(y * dy, axis=1)

    last = (n_cols - 1) // COLS * COLS
    for back in range(0, n_cols, COLS):
        cols = last - back + tl.arange(0, COLS)
        dy = tile(dy_rows, there, cols, n_cols, 0.0)
        y = tile(y_rows, there, cols, n_cols, 0.0)
        put(dx_rows, there, cols, n_cols, y * (dy - s[:, None]))


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def tile_for(n_rows: int, n_cols: int, widest: int):
    """Rows and columns of a tile, both powers of two."""
    cols = clamp(triton.next_power_of_2(n_cols), 1, widest)
    rows = clamp(SHORT // cols, 1, triton.next_power_of_2(n_rows))
    return rows, cols


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), written to `out` where one is given."""
    n_rows, n_cols = x.shape
    if out is None:
        out = x.new_empty((n_rows, n_cols))
    rows, cols = tile_for(n_rows, n_cols, FORWARD_BLOCK)
    online_softmax_kernel[(triton.cdiv(n_rows, rows),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=rows,
        COLS=cols,
        num_warps=clamp(rows * cols // 1024, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = y.shape
    if out is None:
        out = y.new_empty((n_rows, n_cols))
    rows, cols = tile_for(n_rows, n_cols, BACKWARD_BLOCK)
    softmax_backward_kernel[(triton.cdiv(n_rows, rows),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=rows,
        COLS=cols,
        num_warps=clamp(rows * cols // 512, 1, 16),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        # The kernel takes any row stride, also 0, but neighbouring columns.
        if dy.stride(1) != 1:
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
