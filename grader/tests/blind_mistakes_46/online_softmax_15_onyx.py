# labs/lab2_online_softmax/online_softmax.py | two mistakes | First, in `softmax_gradient_kernel` the line `products += dy_near * y_far` should be `dy_far * y_far`: it shows in rows longer than one block of 2048 columns, such as 2600, 16385 or 40000. Second, `softmax_backward` launches with `out.stride(0), y.stride(0), dy.stride(0)` where the kernel takes `stride_dx, stride_dy, stride_y`, so the last two should change places: it shows where dy and y have different row strides and there is more than one row, such as (29, 1001) with pads of 24 and 8.
"""Softmax over rows, its gradient and the autograd function; each turn of the first loops takes two blocks."""

import torch
import triton
import triton.language as tl

BLOCK = 2048  # columns of one of the two blocks


@triton.jit
def read(row_ptr, cols, n_cols, other):
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def softmax_kernel(y_ptr, x_ptr, stride_y, stride_x, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    highest = -float("inf")
    norm = 0.0
    for start in range(0, n_cols, 2 * BLOCK):
        left = read(x_row, start + lanes, n_cols, -float("inf"))
        right = read(x_row, start + BLOCK + lanes, n_cols, -float("inf"))
        higher = tl.maximum(highest, tl.max(tl.maximum(left, right), axis=0))
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        norm = norm * tl.exp(highest - shift) + tl.sum(tl.exp(left - shift) + tl.exp(right - shift), axis=0)
        highest = higher
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        y = tl.exp(read(x_row, cols, n_cols, -float("inf")) - highest) / norm
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_gradient_kernel(
    dx_ptr, dy_ptr, y_ptr, stride_dx, stride_dy, stride_y, n_cols, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dx_row = dx_ptr + row * stride_dx
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, 2 * BLOCK):
        near = start + lanes
        far = start + BLOCK + lanes
        dy_near = read(dy_row, near, n_cols, 0.0)
        y_near = read(y_row, near, n_cols, 0.0)
        dy_far = read(dy_row, far, n_cols, 0.0)
        y_far = read(y_row, far, n_cols, 0.0)
        products += dy_near * y_near
        products += dy_near * y_far
    s = tl.sum(products, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dx = read(y_row, cols, n_cols, 0.0) * (read(dy_row, cols, n_cols, 0.0) - s)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def width_of(n_cols: int) -> int:
    """The columns of a block for rows of this length."""
    return min(triton.next_power_of_2(n_cols), BLOCK)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of each row of x."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    softmax_kernel[(n_rows,)](
        out, x, out.stride(0), x.stride(0), n_cols, BLOCK=width_of(n_cols), num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for x, from the gradient for y and from y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    softmax_gradient_kernel[(n_rows,)](
        out, dy, y, out.stride(0), y.stride(0), dy.stride(0), n_cols, BLOCK=width_of(n_cols), num_warps=8
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax as a differentiable function."""

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
    """Softmax of each row of x, for autograd."""
    return OnlineSoftmax.apply(x)
