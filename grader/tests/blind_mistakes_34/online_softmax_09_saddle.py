# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax that reads a short row once, and walks back over a long one."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
):
    """A row that fits into a block stays in registers; of others the last block is normalised first."""
    row = tl.program_id(axis=0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    if ONE_BLOCK:
        inside = lane < n_cols
        x = tl.load(x_row + lane, mask=inside, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        y = e / tl.sum(e, axis=0)
        tl.store(y_row + lane, y.to(y_ptr.dtype.element_ty), mask=inside)
    else:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            inside = start + lane < n_cols
            x = tl.load(x_row + start + lane, mask=inside, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            # Finite, and below every finite value: -inf minus this is -inf.
            shift = tl.maximum(m_new, -3.0e38)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        last = (n_cols - 1) // BLOCK * BLOCK
        for back in range(0, n_cols, BLOCK):
            cols = last - back + lane
            inside = cols < n_cols
            x = tl.load(x_row + cols, mask=inside, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


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
    """The same two ways for the gradient."""
    row = tl.program_id(axis=0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    if ONE_BLOCK:
        inside = lane < n_cols
        dy = tl.load(dy_row + lane, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + lane, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - tl.sum(y * dy, axis=0))
        tl.store(dx_row + lane, dx.to(dx_ptr.dtype.element_ty), mask=inside)
    else:
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + lane
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            s += tl.sum(y * dy, axis=0)
        last = (n_cols - 1) // BLOCK * BLOCK
        for back in range(0, n_cols, BLOCK):
            cols = last - back + lane
            inside = cols < n_cols
            dy = tl.load(dy_row + cols, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=inside, other=0.0).to(tl.float32)
            tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        ONE_BLOCK=n_cols <= block,
        num_warps=clamp(block // 1024, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, BACKWARD_BLOCK)
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
        num_warps=clamp(block // 512, 2, 16),
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
