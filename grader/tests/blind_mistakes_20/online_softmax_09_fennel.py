# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In tile_backward the sum tl.sum(g * p) has no axis and adds up all rows of the tile, so each row of dx is computed with the s of four rows together (right only for a single row). It should be a sum for each row, tl.sum(g * p, axis=1), subtracted as s[:, None].
"""Softmax and its gradient, four rows in one program: short rows alone would leave most of a warp idle."""

import torch
import triton
import triton.language as tl

ROWS = 4
COLS = 2048


@triton.jit
def tile_forward(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    live = rows < n_rows
    x_rows = x_ptr + rows[:, None] * stride_x
    y_rows = y_ptr + rows[:, None] * stride_y

    m = tl.full([ROWS], -float("inf"), dtype=tl.float32)
    d = tl.zeros([ROWS], dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        keep = live[:, None] & (cols < n_cols)[None, :]
        x = tl.load(x_rows + cols[None, :], mask=keep, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new

    # rows that do not exist: anything finite
    m = tl.where(live, m, 0.0)
    d = tl.where(live, d, 1.0)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        keep = live[:, None] & (cols < n_cols)[None, :]
        x = tl.load(x_rows + cols[None, :], mask=keep, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m[:, None]) / d[:, None]
        tl.store(y_rows + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=keep)


@triton.jit
def tile_backward(
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
    live = rows < n_rows
    dy_rows = dy_ptr + rows[:, None] * stride_dy
    y_rows = y_ptr + rows[:, None] * stride_y
    dx_rows = dx_ptr + rows[:, None] * stride_dx

    s = 0.0
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        keep = live[:, None] & (cols < n_cols)[None, :]
        g = tl.load(dy_rows + cols[None, :], mask=keep, other=0.0).to(tl.float32)
        p = tl.load(y_rows + cols[None, :], mask=keep, other=0.0).to(tl.float32)
        s += tl.sum(g * p)

    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        keep = live[:, None] & (cols < n_cols)[None, :]
        g = tl.load(dy_rows + cols[None, :], mask=keep, other=0.0).to(tl.float32)
        p = tl.load(y_rows + cols[None, :], mask=keep, other=0.0).to(tl.float32)
        tl.store(dx_rows + cols[None, :], (p * (g - s)).to(dx_ptr.dtype.element_ty), mask=keep)


def width_of(n_cols: int) -> int:
    return max(32, min(COLS, triton.next_power_of_2(n_cols)))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    grid = (triton.cdiv(n_rows, ROWS),)
    tile_forward[grid](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=ROWS, COLS=width_of(n_cols), num_warps=8
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    n_rows, n_cols = y.shape
    grid = (triton.cdiv(n_rows, ROWS),)
    tile_backward[grid](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=ROWS,
        COLS=width_of(n_cols),
        num_warps=8,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Keeps y, the only thing that the gradient needs."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        y = ctx.saved_tensors[0]
        return softmax_backward(grad.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
