# labs/lab2_online_softmax/online_softmax.py | honest | each lane has a maximum and a sum of its own, joined once behind the loop with the factor exp(m_lane - m); sum of the gradient lane by lane | right for all inputs
"""Softmax over rows: each lane has a maximum and a sum of its own."""

import torch
import triton
import triton.language as tl

MAX_BLOCK = 4096


@triton.jit
def row_softmax_kernel(x_ptr, y_ptr, width, step_x, step_y, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + i * step_x
    lane = tl.arange(0, BLOCK)
    m_lane = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    d_lane = tl.zeros((BLOCK,), dtype=tl.float32)
    for begin in range(0, width, BLOCK):
        x = tl.load(x_row + begin + lane, mask=begin + lane < width, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(m_lane, x)
        safe = tl.where(higher == -float("inf"), 0.0, higher)
        d_lane = d_lane * tl.exp(m_lane - safe) + tl.exp(x - safe)
        m_lane = higher
    top = tl.max(m_lane, axis=0)  # finite: a row has a finite value
    total = tl.sum(d_lane * tl.exp(m_lane - top), axis=0)
    for begin in range(0, width, BLOCK):
        inside = begin + lane < width
        x = tl.load(x_row + begin + lane, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - top) / total
        tl.store(y_ptr + i * step_y + begin + lane, y.to(y_ptr.dtype.element_ty), mask=inside)


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


def softmax_forward(x, *, out=None):
    rows, width = x.shape
    y = torch.empty_like(x) if out is None else out
    block = min(triton.next_power_of_2(width), MAX_BLOCK)
    row_softmax_kernel[(rows,)](x, y, width, x.stride(0), y.stride(0), BLOCK=block)
    return y


def softmax_backward(dy, y, *, out=None):
    rows, width = y.shape
    dx = torch.empty_like(dy) if out is None else out
    softmax_grad_kernel[(rows,)](
        dy, y, dx, width, dy.stride(0), y.stride(0), dx.stride(0), BLOCK=min(triton.next_power_of_2(width), MAX_BLOCK)
    )
    return dx


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
