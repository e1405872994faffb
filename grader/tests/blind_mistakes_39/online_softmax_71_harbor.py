# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | softmax_backward_kernel keeps one partial sum of y * dy for each lane in `acc` and never reduces it: the second loop computes `y * (dy - acc)` with the block of lane sums instead of the sum over the row, so each column only sees its own lane (for rows of one block dx = y * dy * (1 - y)). Shows in softmax_backward and in the gradient of softmax for every row of more than one column; it should be s = tl.sum(acc, axis=0) after the first loop, and y * (dy - s).
"""Softmax over rows of any length, its gradient, and both as an autograd function.

Each lane of a block carries its own running values, so that a sweep over the row is free of reductions.
"""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 8192


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """Row i of y is the softmax of row i of x; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    # Lane k sees the columns k, k + BLOCK, k + 2 * BLOCK, ...
    m = tl.full([BLOCK], -float("inf"), dtype=tl.float32)
    d = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        m_new = tl.maximum(m, x)
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)  # a lane may have seen nothing but -inf
        d = d * tl.exp(m - shift) + tl.exp(x - shift)
        m = m_new

    # One reduction for the whole row. A lane with m = -inf has d = 0 and the factor exp(-inf) = 0.
    top = tl.max(m, axis=0)
    total = tl.sum(d * tl.exp(m - top), axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=inside, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - top) / total
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


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
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        acc += y * dy

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - acc)
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; rows of x and of `out` may be any number of elements apart."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
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
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
