# labs/lab2_online_softmax/online_softmax.py | contract | In softmax_backward `out = dy` where no out is given: the gradient overwrites the input dy and dy is returned; it must be a new tensor, torch.empty_like(dy). The numbers are right.
"""Softmax with persistent programs: a fixed number of them, each going through the rows in steps of the grid."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192
PROGRAMS = 1024


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    for r in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        row = tl.cast(r, tl.int64)
        src = x_ptr + row * stride_x
        dst = y_ptr + row * stride_y
        # maximum and sum so far
        m = float("-inf")
        d = 0.0
        for k in range(0, tl.cdiv(n_cols, BLOCK)):
            j = k * BLOCK + tl.arange(0, BLOCK)
            v = tl.load(src + j, mask=j < n_cols, other=float("-inf")).to(tl.float32)
            peak = tl.maximum(tl.max(v, axis=0), m)
            ref = tl.where(peak == float("-inf"), 0.0, peak)
            d = tl.sum(tl.exp(v - ref), axis=0) + d * tl.exp(m - ref)
            m = peak
        for k in range(0, tl.cdiv(n_cols, BLOCK)):
            j = k * BLOCK + tl.arange(0, BLOCK)
            v = tl.load(src + j, mask=j < n_cols, other=float("-inf")).to(tl.float32)
            tl.store(dst + j, (tl.exp(v - m) / d).to(y_ptr.dtype.element_ty), mask=j < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    for r in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        row = tl.cast(r, tl.int64)
        s = 0.0
        for k in range(0, tl.cdiv(n_cols, BLOCK)):
            j = k * BLOCK + tl.arange(0, BLOCK)
            a = tl.load(dy_ptr + row * stride_dy + j, mask=j < n_cols, other=0.0).to(tl.float32)
            b = tl.load(y_ptr + row * stride_y + j, mask=j < n_cols, other=0.0).to(tl.float32)
            s += tl.sum(a * b, axis=0)
        for k in range(0, tl.cdiv(n_cols, BLOCK)):
            j = k * BLOCK + tl.arange(0, BLOCK)
            a = tl.load(dy_ptr + row * stride_dy + j, mask=j < n_cols, other=0.0).to(tl.float32)
            b = tl.load(y_ptr + row * stride_y + j, mask=j < n_cols, other=0.0).to(tl.float32)
            tl.store(dx_ptr + row * stride_dx + j, (b * (a - s)).to(dx_ptr.dtype.element_ty), mask=j < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of each row of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    grid = (min(n_rows, PROGRAMS),)
    online_softmax_kernel[grid](x, out, n_rows, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=8)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input; each element of dy is read before its dx is stored."""
    if out is None:
        out = dy
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    grid = (min(n_rows, PROGRAMS),)
    softmax_backward_kernel[grid](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
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
    """Differentiable softmax."""
    return OnlineSoftmax.apply(x)
