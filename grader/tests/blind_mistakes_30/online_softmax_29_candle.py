# labs/lab2_online_softmax/online_softmax.py | error | softmax_backward sets `grid = (dy.shape[0])`, which is a number and no tuple, so the launch fails ("object of type 'int' has no len()") in every case of softmax_backward and of the gradient of softmax; should be `(dy.shape[0],)`
"""Online softmax: a row that fits one block is read once, a longer one twice."""

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
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    lanes = tl.arange(0, BLOCK)
    if ONE_BLOCK:
        x = tl.load(x_ptr + lanes, mask=lanes < n_cols, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(y_ptr + lanes, e / tl.sum(e, axis=0), mask=lanes < n_cols)
    else:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            tl.store(y_ptr + cols, tl.exp(x - m) / d, mask=cols < n_cols)


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
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lanes = tl.arange(0, BLOCK)
    if ONE_BLOCK:
        dy = tl.load(dy_ptr + lanes, mask=lanes < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + lanes, mask=lanes < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_ptr + lanes, y * (dy - tl.sum(dy * y, axis=0)), mask=lanes < n_cols)
    else:
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            dy = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            s += tl.sum(dy * y, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            dy = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            tl.store(dx_ptr + cols, y * (dy - s), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_cols = x.shape[1]
    block = clamp(triton.next_power_of_2(n_cols), 32, FORWARD_BLOCK)
    grid = (x.shape[0],)
    online_softmax_kernel[grid](
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
    if out is None:
        out = torch.empty_like(dy)
    n_cols = dy.shape[1]
    block = clamp(triton.next_power_of_2(n_cols), 32, BACKWARD_BLOCK)
    grid = (dy.shape[0])
    softmax_backward_kernel[grid](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        ONE_BLOCK=n_cols <= block,
        num_warps=clamp(block // 512, 4, 16),
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
    return OnlineSoftmax.apply(x)
