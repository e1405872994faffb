# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) In the first loop of online_softmax_kernel lanes past the end load 0 instead of -inf, so they take part in the maximum and add exp(0 - m) to d where n_cols is no multiple of the block. (2) softmax_backward passes dy.stride(0) as the row stride of dx; it must be out.stride(0), which differs when out is padded by another amount.
"""Softmax over rows, forward and backward, with checks of the arguments."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    minus_inf = -float("inf")
    m = minus_inf
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        in_row = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=in_row, other=0.0).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == minus_inf, 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        in_row = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=in_row, other=0.0).to(tl.float32)
        e = tl.exp(x - m)
        tl.store(y_row_ptr + cols, (e / d).to(y_ptr.dtype.element_ty), mask=in_row)


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
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        in_row = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=in_row, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=in_row, other=0.0).to(tl.float32)
        s = s + tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        in_row = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=in_row, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=in_row, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=in_row)


def check(a: torch.Tensor, b: torch.Tensor) -> None:
    if tuple(a.shape) != tuple(b.shape):
        raise ValueError(f"shapes differ: {tuple(a.shape)} and {tuple(b.shape)}")
    if a.dtype != b.dtype:
        raise TypeError(f"dtypes differ: {a.dtype} and {b.dtype}")


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if x.ndim != 2:
        raise ValueError("x must be a matrix")
    if out is None:
        out = torch.empty_like(x)
    check(x, out)
    n_rows, n_cols = x.shape
    width = triton.next_power_of_2(n_cols)
    if width > FORWARD_BLOCK:
        width = FORWARD_BLOCK
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=width, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    check(dy, y)
    if out is None:
        out = torch.empty_like(dy)
    check(dy, out)
    n_rows, n_cols = dy.shape
    width = triton.next_power_of_2(n_cols)
    if width > BACKWARD_BLOCK:
        width = BACKWARD_BLOCK
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), dy.stride(0), BLOCK=width, num_warps=8
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
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
