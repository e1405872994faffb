# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax in which every lane runs the online recurrence over its own columns; the lanes meet at the end."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 8192


@triton.jit
def power(difference):
    """e to a difference, by the base 2 that the hardware has."""
    return tl.exp2(difference * 1.4426950408889634)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Lane j sees columns j, j + BLOCK, j + 2 * BLOCK, and so on."""
    row = tl.program_id(axis=0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    x_lane = x_ptr + row * stride_x + lane
    y_lane = y_ptr + row * stride_y + lane

    lane_max = tl.full([BLOCK], -float("inf"), tl.float32)
    lane_sum = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_lane + start, mask=start + lane < n_cols, other=-float("inf")).to(tl.float32)
        raised = tl.maximum(lane_max, x)
        pivot = tl.where(raised > -float("inf"), raised, 0.0)
        lane_sum = lane_sum * power(lane_max - pivot) + power(x - pivot)
        lane_max = raised

    # A lane that saw nothing finite has the sum 0 and the factor 0.
    top = tl.max(lane_max, axis=0)
    share = 1.0 / tl.sum(lane_sum * power(lane_max - top), axis=0)

    for start in range(0, n_cols, BLOCK):
        inside = start + lane < n_cols
        x = tl.load(x_lane + start, mask=inside, other=-float("inf")).to(tl.float32)
        tl.store(y_lane + start, (power(x - top) * share).to(y_ptr.dtype.element_ty), mask=inside)


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
    """The same walk: lane by lane, then one sum over the lanes."""
    row = tl.program_id(axis=0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    dy_lane = dy_ptr + row * stride_dy + lane
    y_lane = y_ptr + row * stride_y + lane
    dx_lane = dx_ptr + row * stride_dx + lane

    lane_sum = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_cols, BLOCK):
        inside = start + lane < n_cols
        dy = tl.load(dy_lane + start, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_lane + start, mask=inside, other=0.0).to(tl.float32)
        lane_sum += dy * y
    s = tl.sum(lane_sum, axis=0)

    for start in range(0, n_cols, BLOCK):
        inside = start + lane < n_cols
        dy = tl.load(dy_lane + start, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_lane + start, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_lane + start, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=clamp(block // 512, 1, 8)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = dy.new_empty(dy.shape)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, BACKWARD_BLOCK)
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, *strides, BLOCK=block, num_warps=clamp(block // 512, 1, 16)
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
