# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | online_softmax_kernel, second loop: `tl.exp((x - m) * LOG2E)` should be `tl.exp2((x - m) * LOG2E)`; the numerator is exp(1.4427 * (x - m)), the sum d of the first loop is that of exp(x - m). The largest value of a row is right, all others are too small and the rows sum to less than 1. Wrong everywhere but where all values of a row equal its maximum or lie so far below it that exp gives 0.
"""Online softmax with exp2, which a GPU computes in one instruction."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """Differences are multiplied by log2(e) after the maximum is subtracted, so large x keep their digits."""
    row = tl.program_id(axis=0).to(tl.int64)
    block = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + row * stride_x + block
    y_ptrs = y_ptr + row * stride_y + block

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = block < n_cols - start
        x = tl.load(x_ptrs + start, mask=mask, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d *= tl.exp2((m - shift) * LOG2E)
        d += tl.sum(tl.exp2((x - shift) * LOG2E), axis=0)
        m = m_new

    inverse = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        mask = block < n_cols - start
        x = tl.load(x_ptrs + start, mask=mask, other=-float("inf")).to(tl.float32)
        y = tl.exp((x - m) * LOG2E) * inverse
        tl.store(y_ptrs + start, y.to(y_ptr.dtype.element_ty), mask=mask)


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
    block = tl.arange(0, BLOCK)
    dy_ptrs = dy_ptr + row * stride_dy + block
    y_ptrs = y_ptr + row * stride_y + block
    dx_ptrs = dx_ptr + row * stride_dx + block

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = block < n_cols - start
        dy = tl.load(dy_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)

    for start in range(0, n_cols, BLOCK):
        mask = block < n_cols - start
        dy = tl.load(dy_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_ptrs + start, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=mask)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    n_rows, n_cols = x.shape
    if out is None:
        out = x.new_empty((n_rows, n_cols))
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=8 if block == 16384 else clamp(block // 1024, 1, 4),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = dy.new_empty((n_rows, n_cols))
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 32),
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
