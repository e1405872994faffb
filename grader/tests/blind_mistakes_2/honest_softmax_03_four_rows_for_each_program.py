# labs/lab2_online_softmax/online_softmax.py | honest | a program has four rows as a two-dimensional block, with a mask of rows; the sum of the gradient is kept lane by lane; once_differentiable | right for all inputs
"""Softmax, four rows for each program."""

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

ROWS = 4
FORWARD_BLOCK = 2048
MAX_BLOCK = 8192


@triton.jit
def four_rows_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Program i owns ROWS rows from i * ROWS on."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    x_rows = x_ptr + rows[:, None] * stride_x
    y_rows = y_ptr + rows[:, None] * stride_y
    m = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        inside = (rows[:, None] < n_rows) & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=inside, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        inside = (rows[:, None] < n_rows) & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m[:, None]) / d[:, None]
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def products_of_row(g_row, y_row, width, BLOCK: tl.constexpr):
    """The sum of g * y over one row, kept lane by lane until the end."""
    lanes = tl.zeros((BLOCK,), dtype=tl.float32)
    for begin in range(0, width, BLOCK):
        j = begin + tl.arange(0, BLOCK)
        g = tl.load(g_row + j, mask=j < width, other=0.0).to(tl.float32)
        y = tl.load(y_row + j, mask=j < width, other=0.0).to(tl.float32)
        lanes += g * y
    return tl.sum(lanes, axis=0)


@triton.jit
def softmax_grad_kernel(g_ptr, y_ptr, dx_ptr, width, step_g, step_y, step_dx, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    g_row = g_ptr + i * step_g
    y_row = y_ptr + i * step_y
    s = products_of_row(g_row, y_row, width, BLOCK)
    for begin in range(0, width, BLOCK):
        j = begin + tl.arange(0, BLOCK)
        g = tl.load(g_row + j, mask=j < width, other=0.0).to(tl.float32)
        y = tl.load(y_row + j, mask=j < width, other=0.0).to(tl.float32)
        tl.store(dx_ptr + i * step_dx + j, (y * (g - s)).to(dx_ptr.dtype.element_ty), mask=j < width)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    grid = (triton.cdiv(n_rows, ROWS),)
    four_rows_kernel[grid](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=ROWS, BLOCK=block, num_warps=8
    )
    return out


def softmax_backward(dy, y, *, out=None):
    rows, width = y.shape
    dx = torch.empty_like(dy) if out is None else out
    softmax_grad_kernel[(rows,)](
        dy, y, dx, width, dy.stride(0), y.stride(0), dx.stride(0), BLOCK=min(triton.next_power_of_2(width), MAX_BLOCK)
    )
    return dx


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        y = ctx.saved_tensors[0]
        return softmax_backward(dy if dy.is_contiguous() else dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
