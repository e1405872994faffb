# labs/lab2_online_softmax/online_softmax.py | error | softmax_forward: passes out.stride(), the tuple of both strides, where the kernel expects one number for stride_y, so `pid * stride_y` in online_softmax_kernel multiplies a number by a tuple and fails. Every call of softmax_forward and of softmax fails. It should be out.stride()[0], as for x.
"""Online softmax, one row per program."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


@triton.jit
def fold(m, d, x):
    """The maximum and the sum after one more block x."""
    top = tl.maximum(m, tl.max(x, axis=0))
    at = tl.where(top == -float("inf"), 0.0, top)
    return top, d * tl.exp(m - at) + tl.sum(tl.exp(x - at), axis=0)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    source = x_ptr + pid * stride_x
    target = y_ptr + pid * stride_y
    m = -float("inf")
    d = 0.0
    for first in range(0, n_cols, BLOCK):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(source + at, mask=at < n_cols, other=-float("inf")).to(tl.float32)
        m, d = fold(m, d, x)
    for first in range(0, n_cols, BLOCK):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(source + at, mask=at < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(target + at, y.to(y_ptr.dtype.element_ty), mask=at < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    pid = tl.program_id(0).to(tl.int64)
    upstream = dy_ptr + pid * stride_dy
    result = y_ptr + pid * stride_y
    target = dx_ptr + pid * stride_dx
    s = 0.0
    for first in range(0, n_cols, BLOCK):
        at = first + tl.arange(0, BLOCK)
        dy = tl.load(upstream + at, mask=at < n_cols, other=0.0).to(tl.float32)
        y = tl.load(result + at, mask=at < n_cols, other=0.0).to(tl.float32)
        s = s + tl.sum(y * dy, axis=0)
    for first in range(0, n_cols, BLOCK):
        at = first + tl.arange(0, BLOCK)
        dy = tl.load(upstream + at, mask=at < n_cols, other=0.0).to(tl.float32)
        y = tl.load(result + at, mask=at < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(target + at, dx.to(dx_ptr.dtype.element_ty), mask=at < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(FORWARD_BLOCK, triton.next_power_of_2(n_cols))
    grid = (n_rows,)
    online_softmax_kernel[grid](
        x,
        out,
        n_cols,
        x.stride()[0],
        out.stride(),
        BLOCK=block,
        num_warps=clamp(block // 1024, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(BACKWARD_BLOCK, triton.next_power_of_2(n_cols))
    grid = (n_rows,)
    softmax_backward_kernel[grid](
        dy,
        y,
        out,
        n_cols,
        dy.stride()[0],
        y.stride()[0],
        out.stride()[0],
        BLOCK=block,
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
        (y,) = ctx.saved_tensors
        dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
