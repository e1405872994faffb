# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax with one running maximum and one running sum for each lane, which are merged after the last block.

The gradient computes y once more from x, so that only the input has to be kept between the passes.
"""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096


@triton.jit
def power_of_e(t):
    """exp(t), by way of exp2."""
    return tl.exp2(t * 1.4426950408889634)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Row i of y belongs to program i. No reduction inside the first loop."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)

    peak = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    mass = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        col = start + lane
        x = tl.load(x_row + col, mask=col < n_cols, other=-float("inf")).to(tl.float32)
        raised = tl.maximum(peak, x)
        shift = tl.where(raised == -float("inf"), 0.0, raised)
        mass = mass * power_of_e(peak - shift) + power_of_e(x - shift)
        peak = raised

    # At least one lane is finite; a lane that is not has mass 0.
    top = tl.max(peak, axis=0)
    total = tl.sum(mass * power_of_e(peak - top), axis=0)

    # Backwards, because the end of the row was read last.
    last = (n_cols - 1) // BLOCK * BLOCK
    for back in range(0, n_cols, BLOCK):
        col = last - back + lane
        x = tl.load(x_row + col, mask=col < n_cols, other=-float("inf")).to(tl.float32)
        y = power_of_e(x - top) / total
        tl.store(y_row + col, y.to(y_ptr.dtype.element_ty), mask=col < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """Row i of dx belongs to program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)

    pairs = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        col = start + lane
        dy = tl.load(dy_row + col, mask=col < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + col, mask=col < n_cols, other=0.0).to(tl.float32)
        pairs += dy * y
    s = tl.sum(pairs, axis=0)

    last = (n_cols - 1) // BLOCK * BLOCK
    for back in range(0, n_cols, BLOCK):
        col = last - back + lane
        dy = tl.load(dy_row + col, mask=col < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + col, mask=col < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row + col, ((dy - s) * y).to(dx_ptr.dtype.element_ty), mask=col < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def fresh(like: torch.Tensor) -> torch.Tensor:
    """A new contiguous matrix of this shape and dtype."""
    return torch.empty(like.shape, dtype=like.dtype, device=like.device)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; the result goes to `out` where one is given."""
    y = fresh(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, y, n_cols, x.stride(0), y.stride(0), BLOCK=block, num_warps=clamp(block // 512, 1, 8)
    )
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the forward result y."""
    dx = fresh(dy) if out is None else out
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        dx,
        n_cols,
        dy.stride(0),
        y.stride(0),
        dx.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 1, 8),
    )
    return dx


class OnlineSoftmax(torch.autograd.Function):
    """Keeps x; y is computed again when the gradient is asked for."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return softmax_forward(x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), softmax_forward(x))


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
