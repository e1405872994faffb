# labs/lab2_online_softmax/online_softmax.py | corner | scores(), through which online_softmax_kernel reads x in both of its loops, raises every value to at least LOW = -1e9, tl.maximum(x, LOW), to get rid of -inf; m starts there, too. Finite values may lie down to -1e28: in fp32 and bf16 a row whose maximum is at or below -1e9 is all LOW, so each of its columns gets the same share, 1 / (number of lanes of all its blocks, those past the end included). Rows with a larger maximum, and all of fp16, are right. LOW should be the lowest finite number of fp32 (with -inf for lanes past the end and for -inf in x), or x should be left alone and the shift be 0 where m is -inf.
"""Softmax that keeps -inf out of its arithmetic, and its gradient."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192
LOW = tl.constexpr(-1.0e9)


@triton.jit
def scores(row_ptr, cols, n_cols):
    """Columns of a row in fp32, all of them finite; exp(LOW - m) is 0."""
    x = tl.load(row_ptr + cols, mask=cols < n_cols, other=-float("inf"))
    return tl.maximum(x.to(tl.float32), LOW)


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """y[i, :] = exp(x[i, :] - m) / d; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    m = -1.0e9
    d = 0.0
    start = 0
    while start < n_cols:
        x = scores(x_row_ptr, start + lanes, n_cols)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), axis=0)
        m = m_new
        start += BLOCK

    start = 0
    while start < n_cols:
        cols = start + lanes
        y = tl.exp(scores(x_row_ptr, cols, n_cols) - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
        start += BLOCK


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

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        g = tl.load(dy_row_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        p = tl.load(y_row_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        s += tl.sum(g * p, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        g = tl.load(dy_row_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        p = tl.load(y_row_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + cols, (p * (g - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    result = out
    if result is None:
        result = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        result,
        n_cols,
        x.stride(0),
        result.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 1024, 1, 8),
    )
    return result


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    result = out
    if result is None:
        result = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        result,
        n_cols,
        dy.stride(0),
        y.stride(0),
        result.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 1, 16),
    )
    return result


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
