# labs/lab2_online_softmax/online_softmax.py | right | nothing is wrong: short rows have a kernel without a loop, long rows are swept from the last block to the first with exp2, and m starts at -1e30 in place of -inf, below everything that a row may hold
"""Softmax with two forward kernels: one for rows that fit into a block, and the online one for longer rows."""

import torch
import triton
import triton.language as tl

SHORT = 4096  # longest row that is held as a whole
LONG_BLOCK = 8192
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def short_rows_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, WIDTH)
    inside = cols < n_cols
    x = tl.load(x_ptr + row * stride_x + cols, mask=inside, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))  # the maximum is finite
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def long_rows_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    # From the end to the start: then the second sweep begins with what the first one loaded last.
    m = -1e30  # finite values lie within 1e28 of 0
    d = 0.0
    start = (n_cols - 1) // BLOCK * BLOCK
    while start >= 0:
        x = tl.load(x_row + start + lanes, mask=start + lanes < n_cols, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(m, tl.max(x, axis=0))
        d = d * tl.exp2((m - higher) * LOG2E) + tl.sum(tl.exp2((x - higher) * LOG2E), axis=0)
        m = higher
        start -= BLOCK

    for begin in range(0, n_cols, BLOCK):
        inside = begin + lanes < n_cols
        x = tl.load(x_row + begin + lanes, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp2((x - m) * LOG2E) / d
        tl.store(y_row + begin + lanes, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def gradient_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    s = 0.0
    for begin in range(0, n_cols, BLOCK):
        inside = begin + lanes < n_cols
        dy = tl.load(dy_row + begin + lanes, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + begin + lanes, mask=inside, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for begin in range(0, n_cols, BLOCK):
        inside = begin + lanes < n_cols
        dy = tl.load(dy_row + begin + lanes, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + begin + lanes, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_row + begin + lanes, ((dy - s) * y).to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    arguments = (x, out, n_cols, x.stride(0), out.stride(0))
    if n_cols <= SHORT:
        short_rows_kernel[(n_rows,)](*arguments, WIDTH=triton.next_power_of_2(n_cols), num_warps=4)
    else:
        long_rows_kernel[(n_rows,)](*arguments, BLOCK=LONG_BLOCK, num_warps=8)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), LONG_BLOCK)
    gradient_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
