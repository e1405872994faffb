# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In the forward kernel each lane keeps its own maximum and sum, but at the end the sums of the lanes are added as they are (`tl.sum(lane_sum)`), without the factor exp(lane_max - row_max) that brings them to the maximum of the row; so d is too large and y too small.
"""Softmax over rows of any length.

Idea: each lane keeps a maximum and a sum of its own (every BLOCK-th column), and the lanes are only joined
once, after the last block. No reduction inside the loop.
"""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 2048
BACKWARD_BLOCK = 2048


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    ninf = -float("inf")
    lane = tl.arange(0, BLOCK)

    lane_max = tl.full((BLOCK,), ninf, dtype=tl.float32)
    lane_sum = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, n_cols, BLOCK):
        c = first + lane
        v = tl.load(x_ptr + c, mask=c < n_cols, other=ninf).to(tl.float32)
        bigger = tl.maximum(lane_max, v)
        ref = tl.where(bigger == ninf, 0.0, bigger)
        lane_sum = lane_sum * tl.exp(lane_max - ref) + tl.exp(v - ref)
        lane_max = bigger

    # join the lanes
    row_max = tl.max(lane_max, axis=0)
    row_sum = tl.sum(lane_sum, axis=0)

    for first in range(0, n_cols, BLOCK):
        c = first + lane
        v = tl.load(x_ptr + c, mask=c < n_cols, other=ninf).to(tl.float32)
        tl.store(y_ptr + c, (tl.exp(v - row_max) / row_sum).to(y_ptr.dtype.element_ty), mask=c < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lane = tl.arange(0, BLOCK)

    lane_dot = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, n_cols, BLOCK):
        c = first + lane
        a = tl.load(dy_ptr + c, mask=c < n_cols, other=0.0).to(tl.float32)
        b = tl.load(y_ptr + c, mask=c < n_cols, other=0.0).to(tl.float32)
        lane_dot = tl.fma(a, b, lane_dot)
    dot = tl.sum(lane_dot, axis=0)

    for first in range(0, n_cols, BLOCK):
        c = first + lane
        a = tl.load(dy_ptr + c, mask=c < n_cols, other=0.0).to(tl.float32)
        b = tl.load(y_ptr + c, mask=c < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_ptr + c, ((a - dot) * b).to(dx_ptr.dtype.element_ty), mask=c < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    options = {"BLOCK": min(triton.next_power_of_2(n_cols), FORWARD_BLOCK), "num_warps": 4}
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), **options)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=y.device, dtype=y.dtype)
    options = {"BLOCK": min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK), "num_warps": 8}
    strides = [t.stride(0) for t in (dy, y, out)]
    softmax_backward_kernel[(n_rows,)](dy, y, out, n_cols, *strides, **options)
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
    return OnlineSoftmax.apply(x)
