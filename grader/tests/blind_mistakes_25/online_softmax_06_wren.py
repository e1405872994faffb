# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) online_softmax_kernel, first loop: m is replaced by the new maximum before the factor tl.exp(m - shift) is computed, so the factor is always 1 and the old sum is not rescaled; y is wrong in rows of more than 2048 columns where a later block raises the maximum; the factor should use the old m. (2) softmax_backward_kernel: s = 0.0 stands before the loop over the four rows of a program and is not reset for each row, so dx is wrong in all rows but the first of each program; it should be set to 0 inside `if row < n_rows`.
"""Softmax and its gradient. Forward: a program for each row. Backward: a program for four rows, one after another."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 2048
BACKWARD_BLOCK = 2048
ROWS_PER_PROGRAM = 4  # of the backward pass, so that fewer programs have to be started


@triton.jit
def online_softmax_kernel(
    x_ptr,  # (n_rows, n_cols)
    y_ptr,  # (n_rows, n_cols)
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """y = exp(x - m) / d for row number program_id."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf"))
        x = x.to(tl.float32)
        m = tl.maximum(m, tl.max(x, axis=0))
        # nothing but -inf so far: shift by 0, and both exponentials are 0
        shift = tl.where(m == -float("inf"), 0.0, m)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf"))
        x = x.to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx = y * (dy - s), s = sum of y * dy, for ROWS rows from program_id * ROWS on."""
    first = tl.program_id(axis=0).to(tl.int64) * ROWS
    s = 0.0  # sum of y * dy
    for k in range(0, ROWS):
        row = first + k
        if row < n_rows:
            dy_row_ptr = dy_ptr + row * stride_dy
            y_row_ptr = y_ptr + row * stride_y
            dx_row_ptr = dx_ptr + row * stride_dx
            for start in range(0, n_cols, BLOCK):
                cols = start + tl.arange(0, BLOCK)
                dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
                y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
                s += tl.sum(y * dy, axis=0)
            for start in range(0, n_cols, BLOCK):
                cols = start + tl.arange(0, BLOCK)
                dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
                y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
                dx = y * (dy - s)
                tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 16, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 16, BACKWARD_BLOCK)
    grid = (triton.cdiv(n_rows, ROWS_PER_PROGRAM),)
    softmax_backward_kernel[grid](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=ROWS_PER_PROGRAM,
        BLOCK=block,
        num_warps=4,
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
