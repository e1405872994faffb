# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | the second sweep computes `tl.exp2(x - m)` without log2(e), while d was summed with exp2((x - m) * LOG2E); must be exp2((x - m) * LOG2E). Rows sum to more than 1. Shows in nearly every forward result (not for one column, or a row of equal values).
"""Softmax with exp2, the exponential that the hardware has, and its gradient."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def power(x, m):
    """exp(x - m) for m finite."""
    return tl.exp2((x - m) * LOG2E)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_ptr + start + lanes, mask=lanes < n_cols - start, other=-float("inf")).to(tl.float32)
        top = tl.maximum(m, tl.max(x, axis=0))
        # all -inf so far: any finite shift will do
        shift = tl.where(top > -float("inf"), top, 0.0)
        d = d * power(m, shift) + tl.sum(power(x, shift), axis=0)
        m = top
    for start in range(0, n_cols, BLOCK):
        inside = lanes < n_cols - start
        x = tl.load(x_ptr + start + lanes, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp2(x - m) / d
        tl.store(y_ptr + start + lanes, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lanes = tl.arange(0, BLOCK)
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        inside = lanes < n_cols - start
        dy = tl.load(dy_ptr + start + lanes, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + start + lanes, mask=inside, other=0.0).to(tl.float32)
        products += dy * y
    s = tl.sum(products, axis=0)
    for start in range(0, n_cols, BLOCK):
        inside = lanes < n_cols - start
        dy = tl.load(dy_ptr + start + lanes, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + start + lanes, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_ptr + start + lanes, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension."""
    out = torch.empty_like(x) if out is None else out
    rows, cols = x.size(0), x.size(1)
    block = min(FORWARD_BLOCK, triton.next_power_of_2(cols))
    online_softmax_kernel[(rows,)](x, out, cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """y * (dy - sum of y * dy), row by row."""
    out = torch.empty_like(y) if out is None else out
    rows, cols = y.size(0), y.size(1)
    block = min(BACKWARD_BLOCK, triton.next_power_of_2(cols))
    softmax_backward_kernel[(rows,)](
        dy, y, out, cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
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


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax."""
    return OnlineSoftmax.apply(x)
