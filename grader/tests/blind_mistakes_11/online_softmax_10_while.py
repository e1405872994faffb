# labs/lab2_online_softmax/online_softmax.py | error | OnlineSoftmax.backward copies the gradient with `dy.clone(memory_format=torch.contiguous_format)`; clone is not a name of the language page, so the file is POLICY as a whole; must be dy.contiguous(). The kernels and the numbers are right.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    start = 0
    while start < n_cols:
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
        start += BLOCK
    start = 0
    while start < n_cols:
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(y_row_ptr + cols, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=cols < n_cols)
        start += BLOCK


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
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
        # an expanded gradient has stride 0: give every element its own place
        dy = dy.clone(memory_format=torch.contiguous_format)
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
