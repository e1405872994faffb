# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | Backward stores `y * dy - s[:, None]`; s has to be multiplied by y, too: y * (dy - s). dx is off by s * (1 - y), so rows of dx do not sum to 0, in softmax_backward and in the gradient of softmax, in every case but a single column or s = 0. The forward pass is right.
"""Softmax on tiles of several rows: short rows share a program."""

import torch
import triton
import triton.language as tl

TILE = 4096  # elements of a tile, rows times columns


@triton.jit
def rows_of(n_rows, ROWS: tl.constexpr):
    """The rows of this program as a column of numbers, and which of them exist."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    return rows, rows < n_rows


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr
):
    rows, row_ok = rows_of(n_rows, ROWS)
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y
    lanes = tl.arange(0, COLS)[None, :]
    m = tl.full((ROWS,), -float("inf"), tl.float32)
    d = tl.zeros((ROWS,), tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + lanes
        x = tl.load(x_rows + cols, mask=row_ok & (cols < n_cols), other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new
    # Rows that do not exist have met nothing but -inf.
    m = tl.where(m == -float("inf"), 0.0, m)
    d = tl.where(d == 0.0, 1.0, d)
    for start in range(0, n_cols, COLS):
        cols = start + lanes
        ok = row_ok & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=ok, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m[:, None]) / d[:, None]
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=ok)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, ROWS: tl.constexpr, COLS: tl.constexpr
):
    rows, row_ok = rows_of(n_rows, ROWS)
    dy_rows = dy_ptr + rows * stride_dy
    y_rows = y_ptr + rows * stride_y
    dx_rows = dx_ptr + rows * stride_dx
    lanes = tl.arange(0, COLS)[None, :]
    s = tl.zeros((ROWS,), tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + lanes
        ok = row_ok & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=ok, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=1)
    for start in range(0, n_cols, COLS):
        cols = start + lanes
        ok = row_ok & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=ok, other=0.0).to(tl.float32)
        dx = y * dy - s[:, None]
        tl.store(dx_rows + cols, dx.to(dx_ptr.dtype.element_ty), mask=ok)


def tile_of(n_cols: int):
    """Rows and columns of a tile."""
    cols = min(triton.next_power_of_2(n_cols), TILE)
    return min(TILE // cols, 16), cols


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    n_rows, n_cols = x.shape
    rows, cols = tile_of(n_cols)
    grid = (triton.cdiv(n_rows, rows),)
    online_softmax_kernel[grid](x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, COLS=cols)
    return out


def softmax_backward(dy, y, *, out=None):
    if out is None:
        out = torch.empty(dy.shape, device=dy.device, dtype=dy.dtype)
    n_rows, n_cols = dy.shape
    rows, cols = tile_of(n_cols)
    grid = (triton.cdiv(n_rows, rows),)
    softmax_backward_kernel[grid](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0), ROWS=rows, COLS=cols, num_warps=8
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
        return softmax_backward(dy.contiguous(), ctx.saved_tensors[0])


def softmax(x):
    return OnlineSoftmax.apply(x)
