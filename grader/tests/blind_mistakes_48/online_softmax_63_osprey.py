# labs/lab2_online_softmax/online_softmax.py | corner | In `fold`: `top = tl.max(x, axis=0)` must be `tl.maximum(peak, tl.max(x, axis=0))`; the shift is that of the latest block, not the running maximum, which is the same y mathematically. It shows as inf and NaN only in rows of more than 4096 columns where the maximum of one block lies more than about 88 above that of a later one (e.g. 1000 in the first block and 0 after it), or where a whole block of -inf follows finite ones; no sorted or random case with a small spread shows it.
"""Softmax over rows of any length, folded block by block with small helpers, its gradient, and both together."""

import torch
import triton
import triton.language as tl

FORWARD_COLUMNS = 4096
BACKWARD_COLUMNS = 4096
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def columns(start, n_cols, BLOCK: tl.constexpr):
    """Numbers of the columns of a block, and which of them exist."""
    cols = tl.arange(0, BLOCK) + start
    return cols, cols < n_cols


@triton.jit
def power(x, peak):
    """exp(x - peak); the difference first, since large numbers have few digits behind the point."""
    return tl.exp2((x - peak) * LOG2E)


@triton.jit
def fold(peak, total, x):
    """Peak and total of a row with one more block x of it. The total counts multiples of exp(peak)."""
    top = tl.max(x, axis=0)
    # exp(-inf - anything finite) is 0, so 0 serves as the shift of a block that holds -inf alone.
    shift = tl.where(top == -float("inf"), 0.0, top)
    total = total * power(peak, shift) + tl.sum(power(x, shift), axis=0)
    return top, total


@triton.jit
def online_softmax_kernel(
    x_ptr,  # (n_rows, n_cols), columns contiguous
    y_ptr,  # (n_rows, n_cols) like x
    n_cols,
    stride_x,  # elements from one row to the next
    stride_y,
    BLOCK: tl.constexpr,
):
    """Program i computes row i of y: one sweep for peak and total, one for the result."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    peak = -float("inf")
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols, inside = columns(start, n_cols, BLOCK)
        x = tl.load(x_ptr + cols, mask=inside, other=-float("inf"), eviction_policy="evict_last")
        peak, total = fold(peak, total, x.to(tl.float32))
    for start in range(0, n_cols, BLOCK):
        cols, inside = columns(start, n_cols, BLOCK)
        x = tl.load(x_ptr + cols, mask=inside, other=-float("inf"), eviction_policy="evict_first")
        y = power(x.to(tl.float32), peak) / total
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """Program i computes row i of dx = y * (dy - s), where s is the sum of y * dy over the row."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols, inside = columns(start, n_cols, BLOCK)
        dy = tl.load(dy_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols, inside = columns(start, n_cols, BLOCK)
        dy = tl.load(dy_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols); the result goes to `out` where one is given."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    block = min(triton.next_power_of_2(n_cols), FORWARD_COLUMNS)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4 if block > 1024 else 1
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input; dy and y are (n_rows, n_cols) with contiguous columns."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    block = min(triton.next_power_of_2(n_cols), BACKWARD_COLUMNS)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=8 if block > 1024 else 4,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward, with softmax_backward as its gradient."""

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
