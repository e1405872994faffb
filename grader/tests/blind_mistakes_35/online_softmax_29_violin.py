# labs/lab2_online_softmax/online_softmax.py | error | softmax_backward_kernel does not compile: `s = 0.0` is a scalar before the loop, and `s += dy * y` makes it a block of BLOCK numbers in the loop, and Triton does not let a loop-carried variable change its type; the interpreter does not check this and gives right numbers, so it shows where the kernel is compiled (a GPU, or code generation), in softmax_backward and the backward pass of softmax. It should start as s = tl.zeros((BLOCK,), dtype=tl.float32), or be s += tl.sum(dy * y, axis=0) without the sum behind the loop
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """One row for each program."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        here = start + lane < n_cols
        x = tl.load(x_row + start + lane, mask=here, other=-float("inf")).to(tl.float32)
        m_old = m
        m = tl.maximum(m_old, tl.max(x, axis=0))
        shift = tl.where(m == -float("inf"), 0.0, m)
        d *= tl.exp(m_old - shift)
        d += tl.sum(tl.exp(x - shift), axis=0)
    for start in range(0, n_cols, BLOCK):
        here = start + lane < n_cols
        x = tl.load(x_row + start + lane, mask=here, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row + start + lane, y.to(y_ptr.dtype.element_ty), mask=here)


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
    """One row for each program; the sum over the lanes is taken once, after the last block."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        here = start + lane < n_cols
        dy = tl.load(dy_row + start + lane, mask=here, other=0.0).to(tl.float32)
        y = tl.load(y_row + start + lane, mask=here, other=0.0).to(tl.float32)
        s += dy * y
    s = tl.sum(s, axis=0)
    for start in range(0, n_cols, BLOCK):
        here = start + lane < n_cols
        dy = tl.load(dy_row + start + lane, mask=here, other=0.0).to(tl.float32)
        y = tl.load(y_row + start + lane, mask=here, other=0.0).to(tl.float32)
        tl.store(dx_row + start + lane, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=here)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 1024, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = dy.new_empty(dy.shape)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 1, 8),
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
