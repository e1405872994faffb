# labs/lab2_online_softmax/online_softmax.py | right | right: a row that fits one block is read once and stays in registers; a longer row has a maximum and a sum for each lane, merged after the loop with exp(lane maximum - row maximum).
"""Softmax: short rows in one go, long rows with a recurrence in every lane."""

import torch
import triton
import triton.language as tl

WHOLE = 8192  # rows up to this width are read once
FORWARD_LANES = 4096
BACKWARD_LANES = 2048


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    ONE_BLOCK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    lanes = tl.arange(0, BLOCK)
    if ONE_BLOCK:
        x = tl.load(x_ptr + lanes, mask=lanes < n_cols, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        y = e / tl.sum(e, axis=0)
        tl.store(y_ptr + lanes, y.to(y_ptr.dtype.element_ty), mask=lanes < n_cols)
    else:
        tops = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
        sums = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            # Of the two exponents one is 0: a new top rescales the sum, and any other x only adds to it.
            rises = x > tops
            low = tl.where(rises, tops, x)
            high = tl.where(rises, x, tops)
            base = tl.where(low == -float("inf"), 0.0, high)
            ratio = tl.exp(low - base)
            sums = tl.where(rises, sums * ratio + 1.0, sums + ratio)
            tops = high
        m = tl.max(tops, axis=0)
        d = tl.sum(sums * tl.exp(tops - m), axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    ONE_BLOCK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lanes = tl.arange(0, BLOCK)
    if ONE_BLOCK:
        dy = tl.load(dy_ptr + lanes, mask=lanes < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + lanes, mask=lanes < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - tl.sum(y * dy, axis=0))
        tl.store(dx_ptr + lanes, dx.to(dx_ptr.dtype.element_ty), mask=lanes < n_cols)
    else:
        sums = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            dy = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            sums += y * dy
        s = tl.sum(sums, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            dy = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            dx = y * (dy - s)
            tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    fits = n_cols <= WHOLE
    block = triton.next_power_of_2(n_cols) if fits else FORWARD_LANES
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        ONE_BLOCK=fits,
        BLOCK=block,
        num_warps=clamp(block // 512, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    fits = n_cols <= WHOLE
    block = triton.next_power_of_2(n_cols) if fits else BACKWARD_LANES
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ONE_BLOCK=fits,
        BLOCK=block,
        num_warps=clamp(block // 256, 1, 16),
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
