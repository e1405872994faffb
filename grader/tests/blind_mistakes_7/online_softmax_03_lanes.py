# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In online_softmax_kernel `total = tl.sum(lane_sum, axis=0)` adds sums that are relative to different lane maxima; each must first be multiplied by exp(lane_max - top).
"""Online softmax in which every lane keeps a maximum and a sum of its own; lanes are joined once for each row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 8192


@triton.jit
def finite(m):
    # the shift for an exponent: 0 stands in for a maximum that is still -inf
    return tl.where(m == float("-inf"), 0.0, m)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    lanes = tl.arange(0, BLOCK)
    lane_max = tl.full((BLOCK,), float("-inf"), tl.float32)
    lane_sum = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n_cols, BLOCK):
        x = tl.load(x_ptr + first + lanes, mask=lanes < n_cols - first, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(lane_max, x)
        lane_sum = lane_sum * tl.exp(lane_max - finite(higher)) + tl.exp(x - finite(higher))
        lane_max = higher
    top = tl.max(lane_max, axis=0)
    total = tl.sum(lane_sum, axis=0)
    for first in range(0, n_cols, BLOCK):
        x = tl.load(x_ptr + first + lanes, mask=lanes < n_cols - first, other=float("-inf")).to(tl.float32)
        y = tl.exp(x - top) / total
        tl.store(y_ptr + first + lanes, y.to(y_ptr.dtype.element_ty), mask=lanes < n_cols - first)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lanes = tl.arange(0, BLOCK)
    terms = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n_cols, BLOCK):
        valid = lanes < n_cols - first
        dy = tl.load(dy_ptr + first + lanes, mask=valid, other=0.0).to(tl.float32)
        terms += dy * tl.load(y_ptr + first + lanes, mask=valid, other=0.0).to(tl.float32)
    s = tl.sum(terms, axis=0)
    for first in range(0, n_cols, BLOCK):
        valid = lanes < n_cols - first
        dy = tl.load(dy_ptr + first + lanes, mask=valid, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + first + lanes, mask=valid, other=0.0).to(tl.float32)
        tl.store(dx_ptr + first + lanes, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=valid)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    block = min(triton.next_power_of_2(x.size(1)), FORWARD_BLOCK)
    online_softmax_kernel[(x.size(0),)](x, out, x.size(1), x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    block = min(triton.next_power_of_2(y.size(1)), BACKWARD_BLOCK)
    grid = (y.size(0),)
    softmax_backward_kernel[grid](
        dy, y, out, y.size(1), dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
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
