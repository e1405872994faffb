# labs/lab2_online_softmax/online_softmax.py | error | In tile_backward, first loop, `ok = rows[:, None] < n_rows & at[None, :] < n_cols` lacks parentheses: & binds tighter than <, which leaves a chained comparison, and Triton does not compile it, for any size. (Python's interpreter may instead run it with a mask that lets rows and columns past the end through.) softmax_backward and the gradient of softmax fail in all cases; softmax_forward is right. It should be (rows[:, None] < n_rows) & (at[None, :] < n_cols).
"""Softmax on tiles: a program has as many short rows as fit a tile, or walks along one long row."""

import torch
import triton
import triton.language as tl

TILE = 4096
MOST_ROWS = 16


@triton.jit
def tile_forward(x_ptr, y_ptr, n_rows, n_cols, x_step, y_step, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    row_ok = rows < n_rows
    x_rows = x_ptr + rows[:, None] * x_step
    y_rows = y_ptr + rows[:, None] * y_step

    m = tl.full([ROWS], -float("inf"), dtype=tl.float32)
    d = tl.zeros([ROWS], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        at = start + cols
        ok = row_ok[:, None] & (at < n_cols)[None, :]
        x = tl.load(x_rows + at[None, :], mask=ok, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new

    # Rows that do not exist have neither a maximum nor a sum: any finite numbers do for them.
    m = tl.where(row_ok, m, 0.0)
    d = tl.where(row_ok, d, 1.0)
    for start in range(0, n_cols, BLOCK):
        at = start + cols
        ok = row_ok[:, None] & (at < n_cols)[None, :]
        x = tl.load(x_rows + at[None, :], mask=ok, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m[:, None]) / d[:, None]
        tl.store(y_rows + at[None, :], y.to(y_ptr.dtype.element_ty), mask=ok)


@triton.jit
def tile_backward(
    g_ptr, y_ptr, dx_ptr, n_rows, n_cols, g_step, y_step, dx_step, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    g_rows = g_ptr + rows[:, None] * g_step
    y_rows = y_ptr + rows[:, None] * y_step
    dx_rows = dx_ptr + rows[:, None] * dx_step

    s = tl.zeros([ROWS], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        at = start + cols
        ok = rows[:, None] < n_rows & at[None, :] < n_cols
        g = tl.load(g_rows + at[None, :], mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_rows + at[None, :], mask=ok, other=0.0).to(tl.float32)
        s += tl.sum(g * y, axis=1)

    for start in range(0, n_cols, BLOCK):
        at = start + cols
        ok = (rows < n_rows)[:, None] & (at < n_cols)[None, :]
        g = tl.load(g_rows + at[None, :], mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_rows + at[None, :], mask=ok, other=0.0).to(tl.float32)
        dx = y * (g - s[:, None])
        tl.store(dx_rows + at[None, :], dx.to(dx_ptr.dtype.element_ty), mask=ok)


def tile_shape(n_cols: int):
    """Rows and columns of a tile."""
    block = max(16, min(TILE, triton.next_power_of_2(n_cols)))
    return min(TILE // block, MOST_ROWS), block


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax along the rows of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    rows, block = tile_shape(n_cols)
    grid = (triton.cdiv(n_rows, rows),)
    tile_forward[grid](x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, BLOCK=block)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    rows, block = tile_shape(n_cols)
    grid = (triton.cdiv(n_rows, rows),)
    steps = (dy.stride(0), y.stride(0), out.stride(0))
    tile_backward[grid](dy, y, out, n_rows, n_cols, *steps, ROWS=rows, BLOCK=block, num_warps=8)
    return out


class OnlineSoftmax(torch.autograd.Function):
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
    """Softmax that autograd can differentiate."""
    return OnlineSoftmax.apply(x)
