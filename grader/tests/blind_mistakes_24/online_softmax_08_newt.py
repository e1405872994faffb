# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax with lane-wise online sums.

A lane keeps a maximum and a sum of its own over the columns that it sees, so the loop needs no reduction over the block;
the lanes are merged once for each row. The second sweep goes from right to left, because the right end of the row was
read last and is still in the cache. Programs stay and take row after row.
"""

import torch
import triton
import triton.language as tl

PROGRAMS = 4096  # at most so many programs, whatever the number of rows
WIDTH = 2048


@triton.jit
def absorb(m, d, x):
    """Fold x into the maxima m and the sums d = sum of exp(x - m), lane by lane."""
    top = tl.maximum(m, x)
    shift = tl.where(top == -float("inf"), 0.0, top)
    return top, d * tl.exp(m - shift) + tl.exp(x - shift)


@triton.jit
def fetch(row_ptr, cols, n_cols, missing):
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=missing).to(tl.float32)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    last = (n_cols - 1) // BLOCK * BLOCK  # first column of the last block
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y

        m = tl.full((BLOCK,), -float("inf"), tl.float32)
        d = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, n_cols, BLOCK):
            m, d = absorb(m, d, fetch(x_row, start + lane, n_cols, -float("inf")))

        # a lane without a finite value has d = 0 and weight exp(-inf) = 0
        row_max = tl.max(m, axis=0)
        row_sum = tl.sum(d * tl.exp(m - row_max), axis=0)

        for back in range(0, n_cols, BLOCK):
            cols = last - back + lane
            y = tl.exp(fetch(x_row, cols, n_cols, -float("inf")) - row_max) / row_sum
            tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)

        row += tl.num_programs(axis=0)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    lane = tl.arange(0, BLOCK)
    last = (n_cols - 1) // BLOCK * BLOCK
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        dy_row = dy_ptr + row * stride_dy
        y_row = y_ptr + row * stride_y
        dx_row = dx_ptr + row * stride_dx

        parts = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, n_cols, BLOCK):
            parts += fetch(dy_row, start + lane, n_cols, 0.0) * fetch(y_row, start + lane, n_cols, 0.0)
        dot = tl.sum(parts, axis=0)

        for back in range(0, n_cols, BLOCK):
            cols = last - back + lane
            dx = fetch(y_row, cols, n_cols, 0.0) * (fetch(dy_row, cols, n_cols, 0.0) - dot)
            tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)

        row += tl.num_programs(axis=0)


def options(n_cols: int, columns_per_warp: int) -> dict:
    """Width of a block and number of warps for rows of n_cols columns."""
    block = min(triton.next_power_of_2(n_cols), WIDTH)
    return {"BLOCK": block, "num_warps": min(8, max(1, block // columns_per_warp))}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; to `out` where one is given."""
    y = x.new_empty(x.shape) if out is None else out
    n_rows, n_cols = x.shape
    grid = (min(n_rows, PROGRAMS),)
    online_softmax_kernel[grid](x, y, n_rows, n_cols, x.stride(0), y.stride(0), **options(n_cols, 512))
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input; to `out` where one is given."""
    dx = dy.new_empty(dy.shape) if out is None else out
    n_rows, n_cols = dy.shape
    grid = (min(n_rows, PROGRAMS),)
    softmax_backward_kernel[grid](
        dy, y, dx, n_rows, n_cols, dy.stride(0), y.stride(0), dx.stride(0), **options(n_cols, 256)
    )
    return dx


class OnlineSoftmax(torch.autograd.Function):
    """Softmax that knows its gradient."""

    @staticmethod
    def forward(ctx, x):
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        (result,) = ctx.saved_tensors
        return softmax_backward(dy if dy.stride(1) == 1 else dy.contiguous(), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
