# labs/lab2_online_softmax/online_softmax.py | corner | online_softmax_kernel is launched with at most 128 programs, each of which takes every 128th row, but `m = -float("inf")` and `d = 0.0` stand before the loop over rows: from a program's second row on, m and d start from what the row before left. Shows only in matrices of more than 128 rows, in rows 128 and up (too small, or 0). Both should be set inside the loop over rows
"""Softmax with a fixed number of programs, each of which strides over the rows."""

import torch
import triton
import triton.language as tl

PROGRAMS = 128
FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for row in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
        x_row_ptr = x_ptr + tl.cast(row, tl.int64) * stride_x
        y_row_ptr = y_ptr + tl.cast(row, tl.int64) * stride_y
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
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
    BLOCK: tl.constexpr,
):
    lanes = tl.arange(0, BLOCK)
    for row in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
        dy_row_ptr = dy_ptr + tl.cast(row, tl.int64) * stride_dy
        y_row_ptr = y_ptr + tl.cast(row, tl.int64) * stride_y
        dx_row_ptr = dx_ptr + tl.cast(row, tl.int64) * stride_dx
        products = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            products += y * dy
        s = tl.sum(products, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            dx = y * (dy - s)
            tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(min(n_rows, PROGRAMS),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 1, 16),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(min(n_rows, PROGRAMS),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 16),
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
