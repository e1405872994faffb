# labs/lab2_online_softmax/online_softmax.py | error | tl.max and tl.sum are called with dim=1, an argument of PyTorch that Triton does not have, so the forward kernel does not compile. It must be axis=1.
"""Softmax where one program has a tile of several rows; short rows share a program."""

import torch
import triton
import triton.language as tl

TILE_ELEMENTS = 4096
MAX_COLS = 2048


@triton.jit
def softmax_tile_kernel(x_ptr, y_ptr, n_rows, n_cols, sx, sy, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_ok = (rows < n_rows)[:, None]
    x_rows = x_ptr + rows[:, None] * sx
    y_rows = y_ptr + rows[:, None] * sy
    m = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((ROWS,), dtype=tl.float32)
    for c in range(0, n_cols, COLS):
        cols = c + tl.arange(0, COLS)[None, :]
        t = tl.load(x_rows + cols, mask=row_ok & (cols < n_cols), other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(t, dim=1))
        safe = tl.where(m_new == -float("inf"), 0.0, m_new)
        d *= tl.exp(m - safe)
        d += tl.sum(tl.exp(t - safe[:, None]), dim=1)
        m = m_new
    m = tl.where(m == -float("inf"), 0.0, m)
    d = tl.where(d == 0.0, 1.0, d)
    for c in range(0, n_cols, COLS):
        cols = c + tl.arange(0, COLS)[None, :]
        ok = row_ok & (cols < n_cols)
        t = tl.load(x_rows + cols, mask=ok, other=-float("inf")).to(tl.float32)
        out = tl.exp(t - m[:, None]) / d[:, None]
        tl.store(y_rows + cols, out.to(y_ptr.dtype.element_ty), mask=ok)


@triton.jit
def softmax_grad_tile_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, sdy, sy, sdx, ROWS: tl.constexpr, COLS: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_ok = (rows < n_rows)[:, None]
    acc = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for c in range(0, n_cols, COLS):
        cols = c + tl.arange(0, COLS)[None, :]
        ok = row_ok & (cols < n_cols)
        a = tl.load(dy_ptr + rows[:, None] * sdy + cols, mask=ok, other=0.0).to(tl.float32)
        b = tl.load(y_ptr + rows[:, None] * sy + cols, mask=ok, other=0.0).to(tl.float32)
        acc += a * b
    s = tl.sum(acc, axis=1)[:, None]
    for c in range(0, n_cols, COLS):
        cols = c + tl.arange(0, COLS)[None, :]
        ok = row_ok & (cols < n_cols)
        a = tl.load(dy_ptr + rows[:, None] * sdy + cols, mask=ok, other=0.0).to(tl.float32)
        b = tl.load(y_ptr + rows[:, None] * sy + cols, mask=ok, other=0.0).to(tl.float32)
        tl.store(dx_ptr + rows[:, None] * sdx + cols, (b * (a - s)).to(dx_ptr.dtype.element_ty), mask=ok)


def tile(n_rows, n_cols):
    """Rows and columns of a tile: powers of two with at most TILE_ELEMENTS elements."""
    cols = min(triton.next_power_of_2(n_cols), MAX_COLS)
    rows = min(triton.next_power_of_2(n_rows), max(TILE_ELEMENTS // cols, 1), 16)
    return rows, cols


def softmax_forward(x, *, out=None):
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    rows, cols = tile(n_rows, n_cols)
    grid = (triton.cdiv(n_rows, rows),)
    softmax_tile_kernel[grid](x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, COLS=cols)
    return out


def softmax_backward(dy, y, *, out=None):
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    rows, cols = tile(n_rows, n_cols)
    grid = (triton.cdiv(n_rows, rows),)
    softmax_grad_tile_kernel[grid](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0), ROWS=rows, COLS=cols
    )
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


def softmax(x):
    return OnlineSoftmax.apply(x)
