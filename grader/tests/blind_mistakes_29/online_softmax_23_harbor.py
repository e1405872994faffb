# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax and its gradient. Rows that fit one block stay in registers; longer rows are swept forth and back."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, ONE_BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    xs = x_ptr + row * stride_x
    ys = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)
    low = -float("inf")
    if ONE_BLOCK:
        x = tl.load(xs + lane, mask=lane < n_cols, other=low).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        y = e / tl.sum(e, axis=0)
        tl.store(ys + lane, y.to(y_ptr.dtype.element_ty), mask=lane < n_cols)
    else:
        # Each lane has a maximum and a sum of its own; they meet after the loop.
        m = tl.full([BLOCK], low, tl.float32)
        d = tl.zeros([BLOCK], tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = start + lane
            x = tl.load(xs + cols, mask=cols < n_cols, other=low).to(tl.float32)
            m_new = tl.maximum(m, x)
            shift = tl.where(m_new == low, 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.exp(x - shift)
            m = m_new
        top = tl.max(m, axis=0)
        total = tl.sum(d * tl.exp(m - top), axis=0)
        # Backwards, because the end of the row is what the cache saw last.
        last = (tl.cdiv(n_cols, BLOCK) - 1) * BLOCK
        for back in range(0, n_cols, BLOCK):
            cols = last - back + lane
            x = tl.load(xs + cols, mask=cols < n_cols, other=low).to(tl.float32)
            y = tl.exp(x - top) / total
            tl.store(ys + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


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
    ONE_BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    dys = dy_ptr + row * stride_dy
    ys = y_ptr + row * stride_y
    dxs = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)
    if ONE_BLOCK:
        dy = tl.load(dys + lane, mask=lane < n_cols, other=0.0).to(tl.float32)
        y = tl.load(ys + lane, mask=lane < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - tl.sum(dy * y, axis=0))
        tl.store(dxs + lane, dx.to(dx_ptr.dtype.element_ty), mask=lane < n_cols)
    else:
        acc = tl.zeros([BLOCK], tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = start + lane
            dy = tl.load(dys + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(ys + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            acc += dy * y
        s = tl.sum(acc, axis=0)
        last = (tl.cdiv(n_cols, BLOCK) - 1) * BLOCK
        for back in range(0, n_cols, BLOCK):
            cols = last - back + lane
            dy = tl.load(dys + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(ys + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            dx = y * (dy - s)
            tl.store(dxs + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    out = x.new_empty(x.shape) if out is None else out
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 32, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        ONE_BLOCK=n_cols <= block,
        num_warps=clamp(block // 1024, 1, 16),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    out = dy.new_empty(dy.shape) if out is None else out
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 32, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        ONE_BLOCK=n_cols <= block,
        num_warps=clamp(block // 512, 1, 16),
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
        if not ctx.needs_input_grad[0]:
            return None
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
