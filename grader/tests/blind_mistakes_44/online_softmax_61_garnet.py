# labs/lab2_online_softmax/online_softmax.py | right | Nothing is wrong. Unusual: persistent programs with a `while` over rows in int64; the first block of a row stays in registers from the first sweep to the second, and the loops begin behind it, so that short rows are read once without a branch; exp2 of (x - top) * log2(e); dy is copied only where its columns lie apart.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function.

A fixed number of programs shares the rows. The first block of a row stays in registers from the first sweep to the
second, so short rows are read once, without a case of their own.
"""

import torch
import triton
import triton.language as tl

PROGRAMS = 1056  # 8 for each of 132 multiprocessors
WIDEST = 8192
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def power(x, top):
    """exp(x - top). The difference comes first: large x have no digits to lose."""
    return tl.exp2((x - top) * LOG2E)


@triton.jit
def persistent_softmax(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Softmax of rows i, i + programs, i + 2 * programs, ... in program i."""
    head = tl.arange(0, BLOCK)
    in_head = head < n_cols
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        first = tl.load(x_row + head, mask=in_head, other=-float("inf")).to(tl.float32)
        top = tl.max(first, axis=0)
        total = tl.sum(power(first, tl.where(top == -float("inf"), 0.0, top)), axis=0)
        for start in range(BLOCK, n_cols, BLOCK):
            cols = start + head
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            higher = tl.maximum(top, tl.max(x, axis=0))
            finite = tl.where(higher == -float("inf"), 0.0, higher)
            total = total * power(top, finite) + tl.sum(power(x, finite), axis=0)
            top = higher
        tl.store(y_row + head, (power(first, top) / total).to(y_ptr.dtype.element_ty), mask=in_head)
        for start in range(BLOCK, n_cols, BLOCK):
            cols = start + head
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            tl.store(y_row + cols, (power(x, top) / total).to(y_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(axis=0)


@triton.jit
def persistent_gradient(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - s), where s is the sum of y * dy, of the same rows in program i."""
    head = tl.arange(0, BLOCK)
    in_head = head < n_cols
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        dy_row = dy_ptr + row * stride_dy
        y_row = y_ptr + row * stride_y
        dx_row = dx_ptr + row * stride_dx
        first_dy = tl.load(dy_row + head, mask=in_head, other=0.0).to(tl.float32)
        first_y = tl.load(y_row + head, mask=in_head, other=0.0).to(tl.float32)
        s = tl.sum(first_y * first_dy, axis=0)
        for start in range(BLOCK, n_cols, BLOCK):
            cols = start + head
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            s += tl.sum(y * dy, axis=0)
        tl.store(dx_row + head, (first_y * (first_dy - s)).to(dx_ptr.dtype.element_ty), mask=in_head)
        for start in range(BLOCK, n_cols, BLOCK):
            cols = start + head
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(axis=0)


def launch_of(n_rows: int, n_cols: int):
    """Grid, width of a block and number of warps."""
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    return (min(n_rows, PROGRAMS),), block, min(max(block // 512, 1), 16)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous; into `out` if given."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    grid, block, warps = launch_of(n_rows, n_cols)
    persistent_softmax[grid](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax, from dy and the result y; into `out` if given."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    grid, block, warps = launch_of(n_rows, n_cols)
    persistent_gradient[grid](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=warps,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy, which is copied only where its columns lie apart."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy if dy.stride(1) == 1 else dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
