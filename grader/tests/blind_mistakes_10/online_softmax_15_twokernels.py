# labs/lab2_online_softmax/online_softmax.py | right | a row that fits one block is read once, by a kernel without a loop; longer rows go to a persistent kernel whose programs take several rows each. The gradient has one kernel with the number of blocks as a constexpr.
"""Softmax with one kernel for short rows and another for long ones, and its gradient."""

import torch
import triton
import triton.language as tl

ONE_BLOCK = 4096
LOOP_BLOCK = 2048
MOST_PROGRAMS = 1024


@triton.jit
def short_rows_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride_x + cols, mask=mask, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def long_row(x_row, y_row, n_cols, BLOCK: tl.constexpr):
    """One row, in two sweeps."""
    cols = tl.arange(0, BLOCK)
    m = tl.full((), -float("inf"), dtype=tl.float32)
    d = tl.zeros((), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_row + start + cols, mask=start + cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_row + start + cols, mask=start + cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row + start + cols, y.to(y_row.dtype.element_ty), mask=start + cols < n_cols)


@triton.jit
def long_rows_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    for index in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        row = tl.cast(index, tl.int64)
        long_row(x_ptr + row * stride_x, y_ptr + row * stride_y, n_cols, BLOCK)


@triton.jit
def gradient_kernel(
    g_ptr, y_ptr, dx_ptr, n_cols, stride_g, stride_y, stride_dx, BLOCK: tl.constexpr, BLOCKS: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    g_row = g_ptr + row * stride_g
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = tl.zeros((), dtype=tl.float32)
    for i in range(BLOCKS):
        cols = i * BLOCK + tl.arange(0, BLOCK)
        g = tl.load(g_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(g * y, axis=0)
    for i in range(BLOCKS):
        cols = i * BLOCK + tl.arange(0, BLOCK)
        g = tl.load(g_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (g - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    if n_cols <= ONE_BLOCK:
        block = triton.next_power_of_2(n_cols)
        short_rows_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block)
    else:
        programs = min(n_rows, MOST_PROGRAMS)
        long_rows_kernel[(programs,)](x, out, n_rows, n_cols, x.stride(0), out.stride(0), BLOCK=LOOP_BLOCK)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    n_rows, n_cols = y.shape
    block = min(triton.next_power_of_2(n_cols), 8192)
    gradient_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        BLOCKS=triton.cdiv(n_cols, block),
        num_warps=8,
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
