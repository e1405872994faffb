# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | `backward_rows` (softmax_backward, and softmax): `products = tl.zeros((BLOCK,), dtype=tl.float32)` stands before the loop over the ROWS = 4 rows of a program, so the sum of a row includes those of the rows before it in the same program. It should be set to 0 inside that loop, for each row. Only rows 0, 4, 8, ... are right, so every case with more than one row is wrong.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function.

A program has a few consecutive rows and takes one after the other.
"""

import torch
import triton
import triton.language as tl

ROWS = 4  # rows of a program
FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 4096


@triton.jit
def forward_rows(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = softmax of the rows of x from ROWS * i on, in program i."""
    first = tl.program_id(axis=0).to(tl.int64) * ROWS
    lanes = tl.arange(0, BLOCK)
    for i in range(0, ROWS):
        row = first + i
        if row < n_rows:
            x_row = x_ptr + row * stride_x
            y_row = y_ptr + row * stride_y
            top = -float("inf")
            total = 0.0
            for start in range(0, n_cols, BLOCK):
                cols = start + lanes
                x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
                higher = tl.maximum(top, tl.max(x, axis=0))
                shift = tl.where(higher == -float("inf"), 0.0, higher)
                total = total * tl.exp(top - shift) + tl.sum(tl.exp(x - shift), axis=0)
                top = higher
            for start in range(0, n_cols, BLOCK):
                cols = start + lanes
                x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
                y = tl.exp(x - top) / total
                tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def backward_rows(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx = y * (dy - sum of y * dy) in the rows from ROWS * i on, in program i.

    Products are added lane by lane; one tl.sum a row is enough then.
    """
    first = tl.program_id(axis=0).to(tl.int64) * ROWS
    lanes = tl.arange(0, BLOCK)
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(0, ROWS):
        row = first + i
        if row < n_rows:
            dy_row = dy_ptr + row * stride_dy
            y_row = y_ptr + row * stride_y
            dx_row = dx_ptr + row * stride_dx
            for start in range(0, n_cols, BLOCK):
                cols = start + lanes
                dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
                y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
                products += y.to(tl.float32) * dy.to(tl.float32)
            total = tl.sum(products, axis=0)
            for start in range(0, n_cols, BLOCK):
                cols = start + lanes
                dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
                y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
                dx = y.to(tl.float32) * (dy.to(tl.float32) - total)
                tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def warps_of(block: int) -> int:
    """A warp for each 512 columns, 1 to 8."""
    return min(max(block // 512, 1), 8)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous; into `out` if given."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    forward_rows[(triton.cdiv(n_rows, ROWS),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=ROWS,
        BLOCK=block,
        num_warps=warps_of(block),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax, from dy and y, (n_rows, n_cols); into `out` if given."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    backward_rows[(triton.cdiv(n_rows, ROWS),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=ROWS,
        BLOCK=block,
        num_warps=warps_of(block),
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
