# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | online_softmax_kernel, second loop: tl.exp(x - peak) uses the maximum of each lane in place of the maximum of the row, so nearly all results are wrong (for one block every finite column becomes 1 / total); it should be tl.exp(x - top). softmax_backward alone is right.
"""Softmax over rows: every lane runs its own online recurrence, and the lanes are merged once at the end."""

import torch
import triton
import triton.language as tl

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite fp32 number
FORWARD_BLOCK = 1024
BACKWARD_BLOCK = 2048


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """Lane l sees the columns l, l + BLOCK, l + 2 * BLOCK, ... of its row."""
    row = tl.program_id(axis=0).to(tl.int64)
    src = x_ptr + row * stride_x
    dst = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)

    # From a finite start, -inf needs no special case: -inf minus a finite number is -inf.
    peak = tl.full((BLOCK,), LOWEST, tl.float32)
    mass = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        x = tl.load(src + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(peak, x)
        mass = mass * tl.exp(peak - higher) + tl.exp(x - higher)
        peak = higher

    # merge the lanes
    top = tl.max(peak, axis=0)
    total = tl.sum(mass * tl.exp(peak - top), axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        x = tl.load(src + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - peak) / total
        tl.store(dst + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


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
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lane = tl.arange(0, BLOCK)

    partial = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        g = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        partial += g * y
    s = tl.sum(partial, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        g = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_ptr + cols, (y * (g - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def fresh(like: torch.Tensor) -> torch.Tensor:
    """A new contiguous matrix."""
    return torch.empty(like.shape, dtype=like.dtype, device=like.device)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = fresh(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input."""
    if out is None:
        out = fresh(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=4
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
