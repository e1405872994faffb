# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax over rows: a short row stays in registers, a long one is swept twice."""

import torch
import triton
import triton.language as tl

SHORT = 4096  # columns that one block may hold
PROGRAMS = 1024


@triton.jit
def short_rows_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    while row < n_rows:
        x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        y = e / tl.sum(e, axis=0)
        tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(0)


@triton.jit
def long_rows_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    while row < n_rows:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            block_max = tl.max(x, axis=0)
            # The sum of the block relative to its own maximum, then both sums relative to the larger one.
            block_ref = tl.where(block_max == -float("inf"), 0.0, block_max)
            block_d = tl.sum(tl.exp(x - block_ref), axis=0)
            m_new = tl.maximum(m, block_max)
            ref = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - ref) + block_d * tl.exp(block_max - ref)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(0)


@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    while row < n_rows:
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            s += tl.sum(dy * y, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            dx = (y * (dy - s)).to(dx_ptr.dtype.element_ty)
            tl.store(dx_ptr + row * stride_dx + cols, dx, mask=cols < n_cols)
        row += tl.num_programs(0)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n_rows, n_cols = x.shape
    y = out if out is not None else torch.empty_like(x)
    grid = (min(n_rows, PROGRAMS),)
    sizes = (n_rows, n_cols, x.stride(0), y.stride(0))
    if n_cols <= SHORT:
        short_rows_kernel[grid](x, y, *sizes, BLOCK=triton.next_power_of_2(n_cols), num_warps=4)
    else:
        long_rows_kernel[grid](x, y, *sizes, BLOCK=2 * SHORT, num_warps=8)
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n_rows, n_cols = dy.shape
    dx = out if out is not None else torch.empty_like(dy)
    grid = (min(n_rows, PROGRAMS),)
    sizes = (n_rows, n_cols, dy.stride(0), y.stride(0), dx.stride(0))
    block = min(triton.next_power_of_2(n_cols), SHORT)
    gradient_kernel[grid](dy, y, dx, *sizes, BLOCK=block, num_warps=8)
    return dx


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
