# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) online_softmax_kernel: `lse = m + tl.log(d)` and `tl.exp(x - lse)` lose the digits of log(d) in fp32 where m is large: relative errors of about 1e-5 to 1e-3 where the maximum lies some hundreds to ten thousands from 0 (offset, huge, negative), and for values of 1e9 and more log(d) is lost altogether, so that every column at the maximum gets 1; it should be tl.exp(x - m) / d. (2) softmax_backward_kernel: `s = 0.0` stands before the loop over the rows of a program, so that the sums of earlier rows stay in s: with more than one row, all rows of dx but the first of each group of 4 (rows 1, 2, 3, 5, 6, 7, ...) are wrong; s should be set to 0 for each row, in softmax_backward and so in the gradient of softmax()
"""Softmax over rows of any length, several rows for each program, its gradient, and both for autograd."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192
ROWS = 4  # rows of one program


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = exp(x - lse), with lse the logarithm of the row's sum of exp(x); ROWS rows in each program."""
    first_row = tl.program_id(axis=0).to(tl.int64) * ROWS
    for step in range(ROWS):
        row = first_row + step
        if row < n_rows:
            x_row_ptr = x_ptr + row * stride_x
            y_row_ptr = y_ptr + row * stride_y
            m = -float("inf")
            d = 0.0
            for start in range(0, n_cols, BLOCK):
                cols = start + tl.arange(0, BLOCK)
                x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
                m_new = tl.maximum(m, tl.max(x, axis=0))
                shift = tl.where(m_new == -float("inf"), 0.0, m_new)
                d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
                m = m_new
            lse = m + tl.log(d)
            for start in range(0, n_cols, BLOCK):
                cols = start + tl.arange(0, BLOCK)
                x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
                y = tl.exp(x - lse)
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
    """dx = y * (dy - s), with s the sum of y * dy; ROWS rows in each program."""
    first_row = tl.program_id(axis=0).to(tl.int64) * ROWS
    s = 0.0
    for step in range(ROWS):
        row = first_row + step
        if row < n_rows:
            dy_row_ptr = dy_ptr + row * stride_dy
            y_row_ptr = y_ptr + row * stride_y
            dx_row_ptr = dx_ptr + row * stride_dx
            for start in range(0, n_cols, BLOCK):
                cols = start + tl.arange(0, BLOCK)
                dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
                y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
                s += tl.sum(dy * y, axis=0)
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
    """Softmax over the last dimension of x; rows of x and of `out` may be any number of elements apart."""
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    grid = (triton.cdiv(n_rows, ROWS),)
    online_softmax_kernel[grid](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=ROWS,
        BLOCK=block,
        num_warps=clamp(block // 1024, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = dy.new_empty(dy.shape)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    grid = (triton.cdiv(n_rows, ROWS),)
    softmax_backward_kernel[grid](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=ROWS,
        BLOCK=block,
        num_warps=clamp(block // 512, 1, 16),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        result = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
