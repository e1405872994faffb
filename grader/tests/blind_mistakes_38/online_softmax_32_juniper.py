# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax and its gradient from a fixed number of programs, each of which takes every PROGRAMS-th row.

A row that fits one block is read once and stays in registers; only a longer one is swept twice.
"""

import torch
import triton
import triton.language as tl

PROGRAMS = 1056  # eight for each of 132 multiprocessors
WIDEST = 4096


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
    FITS: tl.constexpr,
):
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        if FITS:
            x = tl.load(x_row + lanes, mask=lanes < n_cols, other=-float("inf")).to(tl.float32)
            weights = tl.exp(x - tl.max(x, axis=0))
            y = weights / tl.sum(weights, axis=0)
            tl.store(y_row + lanes, y.to(y_ptr.dtype.element_ty), mask=lanes < n_cols)
        else:
            m = -float("inf")
            d = 0.0
            for start in range(0, n_cols, BLOCK):
                cols = start + lanes
                x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
                m_new = tl.maximum(m, tl.max(x, axis=0))
                shift = tl.where(m_new == -float("inf"), 0.0, m_new)
                d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
                m = m_new
            for start in range(0, n_cols, BLOCK):
                cols = start + lanes
                x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
                y = tl.exp(x - m) / d
                tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(axis=0)


@triton.jit
def products(dy_row, y_row, cols, n_cols):
    """One block of dy and of y in fp32, 0 past the end of the row, and the sum of their products."""
    dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    return dy, y, tl.sum(dy * y, axis=0)


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
    FITS: tl.constexpr,
):
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        dy_row = dy_ptr + row * stride_dy
        y_row = y_ptr + row * stride_y
        dx_row = dx_ptr + row * stride_dx
        if FITS:
            dy, y, s = products(dy_row, y_row, lanes, n_cols)
            dx = y * (dy - s)
            tl.store(dx_row + lanes, dx.to(dx_ptr.dtype.element_ty), mask=lanes < n_cols)
        else:
            total = 0.0
            for start in range(0, n_cols, BLOCK):
                dy, y, part = products(dy_row, y_row, start + lanes, n_cols)
                total += part
            for start in range(0, n_cols, BLOCK):
                dy, y, part = products(dy_row, y_row, start + lanes, n_cols)
                dx = y * (dy - total)
                tl.store(dx_row + start + lanes, dx.to(dx_ptr.dtype.element_ty), mask=start + lanes < n_cols)
        row += tl.num_programs(axis=0)


def constants(n_cols: int):
    """Block, whether a row fits it, and warps for 16 elements a thread."""
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    return {"BLOCK": block, "FITS": n_cols <= block, "num_warps": max(block // 512, 1)}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    online_softmax_kernel[(min(n_rows, PROGRAMS),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), **constants(n_cols)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = dy.new_empty(dy.shape)
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(min(n_rows, PROGRAMS),)](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0), **constants(n_cols)
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
        # Columns of a step other than 1 need a copy; rows may lie anywhere.
        if dy.stride(1) != 1:
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
