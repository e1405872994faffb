# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax and its gradient on tiles: a program owns several short rows, or one long row."""

import torch
import triton
import triton.language as tl

TILE = 4096  # elements of a tile
MOST_ROWS = 8


@triton.jit
def read(base, cols, keep, fill):
    """A tile as fp32, and `fill` where nothing is kept."""
    return tl.load(base + cols, mask=keep, other=fill).to(tl.float32)


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    live = rows < n_rows
    x_base = x_ptr + rows[:, None] * stride_x
    y_base = y_ptr + rows[:, None] * stride_y
    m = tl.full([ROWS], -float("inf"), tl.float32)
    d = tl.zeros([ROWS], tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)[None, :]
        x = read(x_base, cols, live[:, None] & (cols < n_cols), -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new
    # Rows past the last one have seen nothing: give them harmless numbers.
    m = tl.where(live, m, 0.0)
    d = tl.where(live, d, 1.0)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)[None, :]
        keep = live[:, None] & (cols < n_cols)
        x = read(x_base, cols, keep, -float("inf"))
        y = tl.exp(x - m[:, None]) / d[:, None]
        tl.store(y_base + cols, y.to(y_ptr.dtype.element_ty), mask=keep)


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
    live = rows < n_rows
    dy_base = dy_ptr + rows[:, None] * stride_dy
    y_base = y_ptr + rows[:, None] * stride_y
    dx_base = dx_ptr + rows[:, None] * stride_dx
    minus_s = tl.zeros([ROWS], tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)[None, :]
        keep = live[:, None] & (cols < n_cols)
        minus_s -= tl.sum(read(dy_base, cols, keep, 0.0) * read(y_base, cols, keep, 0.0), axis=1)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)[None, :]
        keep = live[:, None] & (cols < n_cols)
        dx = (read(dy_base, cols, keep, 0.0) + minus_s[:, None]) * read(y_base, cols, keep, 0.0)
        tl.store(dx_base + cols, dx.to(dx_ptr.dtype.element_ty), mask=keep)


def tile_of(n_cols: int):
    """Rows and columns of a tile, both powers of two."""
    cols = min(triton.next_power_of_2(n_cols), TILE)
    return min(TILE // cols, MOST_ROWS), cols


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    n_rows, n_cols = x.shape
    if out is None:
        out = x.new_empty((n_rows, n_cols))
    rows, cols = tile_of(n_cols)
    online_softmax_kernel[(triton.cdiv(n_rows, rows),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, COLS=cols, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = y.shape
    if out is None:
        out = y.new_empty((n_rows, n_cols))
    rows, cols = tile_of(n_cols)
    strides = [t.stride(0) for t in (dy, y, out)]
    softmax_backward_kernel[(triton.cdiv(n_rows, rows),)](
        dy, y, out, n_rows, n_cols, *strides, ROWS=rows, COLS=cols, num_warps=8
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
        columns_apart = dy.stride(1) != 1
        return softmax_backward(dy.contiguous() if columns_apart else dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
