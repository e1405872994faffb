# labs/lab2_online_softmax/online_softmax.py | error | softmax_backward_kernel, second loop: `dx = y * (dy - s)` subtracts s of shape [ROWS] from dy of shape [ROWS, BLOCK]; Triton aligns s with the columns as [1, ROWS], and 4 does not match BLOCK (at least 16), so the kernel does not compile ("incompatible dimensions") in any call of softmax_backward or backward of softmax. It should be `dy - s[:, None]`.
"""Softmax and its gradient on tiles of a few rows by many columns."""

import torch
import triton
import triton.language as tl

ROWS_PER_PROGRAM = 4
WIDEST = 4096


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols0 = tl.arange(0, BLOCK)
    x_rows = x_ptr + rows[:, None] * stride_x
    y_rows = y_ptr + rows[:, None] * stride_y
    m = tl.full([ROWS], -float("inf"), dtype=tl.float32)
    d = tl.zeros([ROWS], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + cols0
        mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
        x = tl.load(x_rows + cols[None, :], mask=mask, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new
    # rows behind the last one hold nothing
    m = tl.where(rows < n_rows, m, 0.0)
    d = tl.where(rows < n_rows, d, 1.0)
    for start in range(0, n_cols, BLOCK):
        cols = start + cols0
        mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
        x = tl.load(x_rows + cols[None, :], mask=mask, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m[:, None]) / d[:, None]
        tl.store(y_rows + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=mask)


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
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols0 = tl.arange(0, BLOCK)
    dy_rows = dy_ptr + rows[:, None] * stride_dy
    y_rows = y_ptr + rows[:, None] * stride_y
    dx_rows = dx_ptr + rows[:, None] * stride_dx
    s = tl.zeros([ROWS], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + cols0
        mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
        dy = tl.load(dy_rows + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=1)
    for start in range(0, n_cols, BLOCK):
        cols = start + cols0
        mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
        dy = tl.load(dy_rows + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_rows + cols[None, :], dx.to(dx_ptr.dtype.element_ty), mask=mask)


def tile_width(n_cols: int) -> int:
    return min(max(triton.next_power_of_2(n_cols), 16), WIDEST)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    width = tile_width(n_cols)
    grid = (triton.cdiv(n_rows, ROWS_PER_PROGRAM),)
    online_softmax_kernel[grid](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=ROWS_PER_PROGRAM,
        BLOCK=width,
        num_warps=8 if width >= 2048 else 4,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    width = tile_width(n_cols)
    grid = (triton.cdiv(n_rows, ROWS_PER_PROGRAM),)
    softmax_backward_kernel[grid](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=ROWS_PER_PROGRAM,
        BLOCK=width,
        num_warps=16 if width >= 2048 else 4,
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


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
