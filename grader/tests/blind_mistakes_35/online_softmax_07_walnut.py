# labs/lab2_online_softmax/online_softmax.py | contract | The numbers are right, but the space between rows is touched ("Do not touch the space between rows"): stored_width, which both passes share, rounds the number of columns up to a multiple of 8 where the row stride of out leaves room, and both kernels store with cols < n_stored, so up to 7 elements behind each row of a padded out become 0 (behind the last row possibly past the end of out). Shows for padded out whose n_cols is no multiple of 8; the stores should be masked with cols < n_cols.
"""Softmax and its gradient over rows of any length; rows are stored in groups of 16 bytes."""

import torch
import triton
import triton.language as tl

WIDEST = 8192


@triton.jit
def forward_row(x_ptr, y_ptr, n_cols, n_stored, stride_x, stride_y, BLOCK: tl.constexpr):
    """Softmax of one row."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    top = -float("inf")
    total = 0.0
    for first in range(0, n_cols, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        highest = tl.maximum(top, tl.max(x, axis=0))
        shift = tl.where(highest == -float("inf"), 0.0, highest)
        total = total * tl.exp(top - shift) + tl.sum(tl.exp(x - shift), axis=0)
        top = highest
    for first in range(0, n_cols, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - top) / total
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_stored)


@triton.jit
def backward_row(
    dy_ptr, y_ptr, dx_ptr, n_cols, n_stored, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """Gradient of one row."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    dot = 0.0
    for first in range(0, n_cols, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dot += tl.sum(y * dy, axis=0)
    for first in range(0, n_cols, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - dot)
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_stored)


def stored_width(result: torch.Tensor) -> int:
    """Columns of a row that a kernel stores."""
    n_cols = result.shape[1]
    return max(n_cols, min(8 * triton.cdiv(n_cols, 8), result.stride(0)))


def block_for(n_cols: int) -> int:
    """Width of a block of columns."""
    return min(triton.next_power_of_2(n_cols), WIDEST)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    n_rows, n_cols = x.shape
    if out is None:
        out = x.new_empty((n_rows, n_cols))
    block = block_for(n_cols)
    forward_row[(n_rows,)](
        x,
        out,
        n_cols,
        stored_width(out),
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=min(max(block // 1024, 1), 4),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = dy.new_empty((n_rows, n_cols))
    block = block_for(n_cols)
    backward_row[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        stored_width(out),
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=min(max(block // 512, 4), 16),
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
        """dx from dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
