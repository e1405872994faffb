# labs/lab2_online_softmax/online_softmax.py | corner | online_softmax_kernel, tail after the loop: d = d + sum(exp(x - m_all)) does not rescale the old d; rows of more than 1024 columns with a partial last block sum to less than 1 where the maximum lies in that last block. It should be d * exp(m - m_all) + ... (d is 0 where m is -inf).
"""Softmax by rows: whole blocks without masks, then one masked block for the columns that are left."""

import torch
import triton
import triton.language as tl

BLOCK_LIMIT = 1024


@triton.jit
def online_softmax_kernel(
    x_ptr,  # (n_rows, n_cols), columns contiguous
    y_ptr,  # (n_rows, n_cols)
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)
    whole = n_cols - n_cols % BLOCK  # columns in whole blocks

    m = -float("inf")
    d = 0.0
    for start in range(0, whole, BLOCK):
        x = tl.load(x_row_ptr + start + lane).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        # all columns so far may be -inf
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    if whole < n_cols:
        cols = whole + lane
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        # the last block: from here on the maximum is finite
        m_all = tl.maximum(m, tl.max(x, axis=0))
        d = d + tl.sum(tl.exp(x - m_all), axis=0)
        m = m_all

    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def products(dy_row_ptr, y_row_ptr, cols, mask):
    """dy * y in fp32, 0 where the mask is false."""
    dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    return dy * y


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
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        s += tl.sum(products(dy_row_ptr, y_row_ptr, cols, cols < n_cols), axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        mask = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def width(n_cols: int) -> int:
    """Columns of a block."""
    return min(BLOCK_LIMIT, triton.next_power_of_2(n_cols))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    rows, cols = x.shape
    online_softmax_kernel[(rows,)](x, out, cols, x.stride(0), out.stride(0), BLOCK=width(cols), num_warps=2)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """dx from dy and y."""
    if out is None:
        out = torch.empty_like(dy)
    rows, cols = y.shape
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    softmax_backward_kernel[(rows,)](dy, y, out, cols, *strides, BLOCK=width(cols), num_warps=4)
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
