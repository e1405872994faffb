# labs/lab2_online_softmax/online_softmax.py | error | online_softmax_kernel, second sweep: `tl.exp(x - m)` subtracts m of shape (ROWS,) from a tile x of shape (ROWS, BLOCK); the shapes do not broadcast (m counts as (1, ROWS), 4 against BLOCK >= 16), so the kernel neither compiles nor runs in the interpreter, at any size. Should be x - m[:, None]
"""Softmax with a tile of a few rows in each program, so that short rows still fill a warp."""

import torch
import triton
import triton.language as tl

ROWS = 4
WIDEST = 2048
BACKWARD_BLOCK = 8192


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_ok = rows < n_rows
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y
    m = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        col_ok = cols < n_cols
        ok = row_ok[:, None] & col_ok[None, :]
        x = tl.load(x_rows[:, None] + cols[None, :], mask=ok, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        col_ok = cols < n_cols
        ok = row_ok[:, None] & col_ok[None, :]
        x = tl.load(x_rows[:, None] + cols[None, :], mask=ok, other=0.0).to(tl.float32)
        y = tl.exp(x - m) / d[:, None]
        tl.store(y_rows[:, None] + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=ok)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        ok = start + offs < n_cols
        g = tl.load(dy_row + start + offs, mask=ok, other=0.0).to(tl.float32)
        p = tl.load(y_row + start + offs, mask=ok, other=0.0).to(tl.float32)
        s += tl.sum(g * p, axis=0)
    for start in range(0, n_cols, BLOCK):
        ok = start + offs < n_cols
        g = tl.load(dy_row + start + offs, mask=ok, other=0.0).to(tl.float32)
        p = tl.load(y_row + start + offs, mask=ok, other=0.0).to(tl.float32)
        tl.store(dx_row + start + offs, (p * (g - s)).to(dx_ptr.dtype.element_ty), mask=ok)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 16, WIDEST)
    grid = (triton.cdiv(n_rows, ROWS),)
    online_softmax_kernel[grid](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=ROWS, BLOCK=block, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 16, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 16),
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
