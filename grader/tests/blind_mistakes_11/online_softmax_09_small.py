# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) the factor for d is exp(m_new - shift), the new maximum minus itself, so d is never rescaled; must be exp(m - shift) with the maximum of before this block. Shows in softmax_forward and softmax for rows of more than one block (n_cols > 2048) whose maximum rises. (2) backward passes the incoming gradient as it comes (`softmax_backward(dy, y)`) although the kernel assumes contiguous columns; must take dy.contiguous(). Shows in the gradient of softmax where dy is expanded (after sum()), transposed, or of every second column.
"""Softmax over rows of any length in blocks of at most 2048 columns."""

import torch
import triton
import triton.language as tl

WIDTH = 2048


@triton.jit
def shift_of(m):
    """What to subtract: m, but 0 as long as only -inf has been seen."""
    return tl.where(m == -float("inf"), 0.0, m)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = start + lanes < n_cols
        x = tl.load(x_row_ptr + start + lanes, mask=mask, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = shift_of(m_new)
        d = tl.exp(m_new - shift) * d + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        mask = start + lanes < n_cols
        x = tl.load(x_row_ptr + start + lanes, mask=mask, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + start + lanes, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = start + lanes < n_cols
        dy = tl.load(dy_row_ptr + start + lanes, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + start + lanes, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        mask = start + lanes < n_cols
        dy = tl.load(dy_row_ptr + start + lanes, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + start + lanes, mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row_ptr + start + lanes, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), WIDTH)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    n_rows, n_cols = y.shape
    block = min(triton.next_power_of_2(n_cols), WIDTH)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=4
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
