# labs/lab2_online_softmax/online_softmax.py | contract | softmax_forward: without `out` the result is made by `x.new_empty_strided(x.size(), x.stride())`, with the strides of x, so for a padded x it is padded as well. All values are right, but the README says that the function then returns a new contiguous matrix. Shows only where x is padded and no out is given (softmax(x) of a padded x returns such a matrix, too). It should be torch.empty(x.shape, dtype=x.dtype, device=x.device).
"""Online softmax in base 2, its gradient, and the autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def power(difference):
    """exp of a difference."""
    return tl.exp2(difference * LOG2_E)


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new > -float("inf"), m_new, 0.0)
        d = d * power(m - shift) + tl.sum(power(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_first")
        y = power(x.to(tl.float32) - m) / d
        tl.store(
            y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols, eviction_policy="evict_first"
        )


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
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    n_rows, n_cols = x.size()
    y = x.new_empty_strided(x.size(), x.stride()) if out is None else out
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        y,
        n_cols,
        x.stride(0),
        y.stride(0),
        BLOCK=block,
        num_warps=8 if block > 8192 else clamp(block // 1024, 1, 4),
    )
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    n_rows, n_cols = dy.size()
    dx = dy.new_empty(dy.size()) if out is None else out
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
        num_warps=clamp(block // 512, 4, 32),
    )
    return dx


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
