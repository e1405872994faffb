# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | softmax_forward, in the combine function `join`: `d = d_a * tl.exp(m_b - shift) + d_b * tl.exp(m_a - shift)` has the two maxima exchanged; it should be `d_a * tl.exp(m_a - shift) + d_b * tl.exp(m_b - shift)`. Shows for all rows of three or more columns (a join of two lanes with sum 1 each is symmetric, so rows of one or two columns are right); softmax is wrong with it.
"""Softmax over rows, its gradient, and both for autograd. Each lane carries a maximum and a sum of its own."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096  # each lane holds a maximum, a sum and a value
BACKWARD_BLOCK = 8192


@triton.jit
def join(m_a, d_a, m_b, d_b):
    """Two parts of a row as one: the larger maximum, and the sum of both parts relative to it."""
    m = tl.maximum(m_a, m_b)
    shift = tl.where(m == -float("inf"), 0.0, m)
    d = d_a * tl.exp(m_b - shift) + d_b * tl.exp(m_a - shift)
    return m, d


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i computes row i: lane j sees the columns j, j + BLOCK, j + 2 * BLOCK, ..."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)

    m = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        x = tl.load(
            x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        higher = tl.maximum(m, x)
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        d = d * tl.exp(m - shift) + tl.exp(x - shift)
        m = higher

    top, total = tl.reduce((m, d), axis=0, combine_fn=join)

    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        inside = cols < n_cols
        x = tl.load(x_row + cols, mask=inside, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - top) / total
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - s), s the sum of y * dy over the row; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(y * dy, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the columns of x, in `out` where it is given."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    forward_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4 if block <= 1024 else 8
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """The gradient for the input of softmax, in `out` where it is given."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
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
        num_warps=min(max(block // 512, 4), 16),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """Return y, and keep it."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
