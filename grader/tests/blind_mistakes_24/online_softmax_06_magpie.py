# labs/lab2_online_softmax/online_softmax.py | error | online_softmax_kernel, second loop: tl.exp(x - m) subtracts m of shape (ROWS,) from a tile of shape (ROWS, BLOCK), whose shapes cannot be broadcast (4 against 16 or more): a compile error on a GPU, an exception in the interpreter, in every forward call; it should be m[:, None].
"""Softmax with several rows for each program, as a two-dimensional tile."""

import torch
import triton
import triton.language as tl

ROWS = 4  # rows of a tile
MAX_TILE_COLS = 1024


@triton.jit
def load_tile(ptr, rows, cols, n_rows, n_cols, stride, fill):
    """The tile of these rows and columns in fp32, `fill` outside the matrix."""
    inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    return tl.load(ptr + rows[:, None] * stride + cols[None, :], mask=inside, other=fill).to(tl.float32)


@triton.jit
def store_tile(ptr, rows, cols, n_rows, n_cols, stride, tile):
    inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    tl.store(ptr + rows[:, None] * stride + cols[None, :], tile.to(ptr.dtype.element_ty), mask=inside)


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    m = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load_tile(x_ptr, rows, cols, n_rows, n_cols, stride_x, -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new
    # rows that do not exist divide by 1
    d = tl.where(rows < n_rows, d, 1.0)
    m = tl.where(rows < n_rows, m, 0.0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load_tile(x_ptr, rows, cols, n_rows, n_cols, stride_x, -float("inf"))
        y = tl.exp(x - m) / d[:, None]
        store_tile(y_ptr, rows, cols, n_rows, n_cols, stride_y, y)


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
    BLOCK: tl.constexpr,
):
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    s = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = load_tile(dy_ptr, rows, cols, n_rows, n_cols, stride_dy, 0.0)
        y = load_tile(y_ptr, rows, cols, n_rows, n_cols, stride_y, 0.0)
        s += tl.sum(dy * y, axis=1)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = load_tile(dy_ptr, rows, cols, n_rows, n_cols, stride_dy, 0.0)
        y = load_tile(y_ptr, rows, cols, n_rows, n_cols, stride_y, 0.0)
        store_tile(dx_ptr, rows, cols, n_rows, n_cols, stride_dx, y * (dy - s[:, None]))


def tile_cols(n_cols: int) -> int:
    """Columns of a tile, from 16 to MAX_TILE_COLS."""
    return min(max(16, triton.next_power_of_2(n_cols)), MAX_TILE_COLS)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    grid = (triton.cdiv(n_rows, ROWS),)
    online_softmax_kernel[grid](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=ROWS, BLOCK=tile_cols(n_cols), num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    grid = (triton.cdiv(n_rows, ROWS),)
    softmax_backward_kernel[grid](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=ROWS,
        BLOCK=tile_cols(n_cols),
        num_warps=8,
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
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
