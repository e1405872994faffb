# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In the helper `slope` (called by `backward_kernel`), `return y * (dy - s) * LOG2E` should be `return y * (dy - s)`: the forward pass computes exp exactly, so no factor of the base belongs into the gradient. dx is 1.4427 times too large in all cases of softmax_backward and of the gradient of softmax, except for one column, where dx is 0.
"""Softmax over rows and its gradient, with exponents of two; a row of one block is read once."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def power(x, top):
    """exp(x - top); the difference is taken first, so that large x keep their digits."""
    return tl.exp2((x - top) * LOG2E)


@triton.jit
def slope(dy, y, s):
    """Gradient of one block from dy, y and the row's sum of dy * y."""
    return y * (dy - s) * LOG2E


@triton.jit
def forward_kernel(
    x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, ONE_BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    lanes = tl.arange(0, BLOCK)
    if ONE_BLOCK:
        mask = lanes < n_cols
        x = tl.load(x_ptr + lanes, mask=mask, other=-float("inf")).to(tl.float32)
        e = power(x, tl.max(x, axis=0))
        y = e / tl.sum(e, axis=0)
        tl.store(y_ptr + lanes, y.to(y_ptr.dtype.element_ty), mask=mask)
    else:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
            x = x.to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            top = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * power(m, top) + tl.sum(power(x, top), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            mask = cols < n_cols
            x = tl.load(x_ptr + cols, mask=mask, other=-float("inf"), eviction_policy="evict_first")
            y = power(x.to(tl.float32), m) / d
            tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lanes = tl.arange(0, BLOCK)
    if ONE_BLOCK:
        mask = lanes < n_cols
        dy = tl.load(dy_ptr + lanes, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + lanes, mask=mask, other=0.0).to(tl.float32)
        dx = slope(dy, y, tl.sum(dy * y, axis=0))
        tl.store(dx_ptr + lanes, dx.to(dx_ptr.dtype.element_ty), mask=mask)
    else:
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            mask = cols < n_cols
            dy = tl.load(dy_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
            y = tl.load(y_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
            s += tl.sum(dy * y, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            mask = cols < n_cols
            dy = tl.load(dy_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
            y = tl.load(y_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
            dx = slope(dy, y, s)
            tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of the rows of x, (n_rows, n_cols) with contiguous columns; written to `out` if given."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    forward_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        ONE_BLOCK=n_cols <= block,
        num_warps=8 if block == FORWARD_BLOCK else 4,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax from dy and y; written to `out` if given."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        ONE_BLOCK=n_cols <= block,
        num_warps=min(max(block // 512, 4), 32),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax that autograd can differentiate."""

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
