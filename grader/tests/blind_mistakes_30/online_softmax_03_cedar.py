# labs/lab2_online_softmax/online_softmax.py | corner | online_softmax_kernel, second sweep: y = exp(x - lse) with `lse = m + tl.log(d)`. For values far from 0 (from some hundreds on: 256, 16384, 1e28) the fp32 sum m + log(d) rounds log(d) away in part or wholly, so rows do not sum to 1 (a row of equal huge values gives 1 everywhere instead of 1 / n_cols). Right for values near 0. Should be exp(x - m) / d (or exp((x - m) - log(d)))
"""Softmax over rows by way of the log of the sum of exponentials: one number for each row is all the second sweep needs."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384
NEG_INF = tl.constexpr(-float("inf"))


@triton.jit
def load_row_block(row_ptr, cols, n_cols, filler):
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=filler).to(tl.float32)


@triton.jit
def fold(m, d, x):
    """(m, d) of the columns so far and the block x together."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == NEG_INF, 0.0, m_new)
    d_new = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
    return m_new, d_new


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load_row_block(x_row_ptr, cols, n_cols, NEG_INF)
        m, d = fold(m, d, x)
    lse = m + tl.log(d)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load_row_block(x_row_ptr, cols, n_cols, NEG_INF)
        y = tl.exp(x - lse)
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = load_row_block(dy_row_ptr, cols, n_cols, 0.0)
        y = load_row_block(y_row_ptr, cols, n_cols, 0.0)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = load_row_block(dy_row_ptr, cols, n_cols, 0.0)
        y = load_row_block(y_row_ptr, cols, n_cols, 0.0)
        dx = y * (dy - s)
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = 8 if block == FORWARD_BLOCK else clamp(block // 1024, 1, 4)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, *strides, BLOCK=block, num_warps=clamp(block // 512, 4, 32)
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
