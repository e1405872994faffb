# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | online_softmax_kernel: the first block is folded into m and d before the loop, but the loop over the other blocks starts at 0 again (`range(0, n_cols, BLOCK)`), so the terms of the first block are counted twice in d: rows of one block (up to 16384 columns) come out as exactly half, longer rows too small by the weight of their first block. Right only where all of the first block is -inf or vanishes beside the maximum. Should be `range(BLOCK, n_cols, BLOCK)`.
"""Softmax whose maximum and sum start from the first block of the row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def read(row_ptr, cols, n_cols, nothing):
    """Columns of a row as fp32, and `nothing` past its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=nothing).to(tl.float32)


@triton.jit
def finite(m):
    """m, or 0 in place of -inf, to be subtracted in an exponent."""
    return tl.where(m == -float("inf"), 0.0, m)


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """One row: m and d from its blocks, then y."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    x = read(x_row, lanes, n_cols, -float("inf"))
    m = tl.max(x, axis=0)
    d = tl.sum(tl.exp(x - finite(m)), axis=0)
    for start in range(0, n_cols, BLOCK):
        x = read(x_row, start + lanes, n_cols, -float("inf"))
        before = m
        m = tl.maximum(before, tl.max(x, axis=0))
        shift = finite(m)
        d = d * tl.exp(before - shift) + tl.sum(tl.exp(x - shift), axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        y = tl.exp(read(x_row, cols, n_cols, -float("inf")) - m) / d
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


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
    """One row: s from its blocks, then dx."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        s += tl.sum(read(dy_row, cols, n_cols, 0.0) * read(y_row, cols, n_cols, 0.0), axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dx = read(y_row, cols, n_cols, 0.0) * (read(dy_row, cols, n_cols, 0.0) - s)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=8 if block > 8192 else clamp(block // 1024, 1, 4),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
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
        num_warps=clamp(block // 512, 4, 32),
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
