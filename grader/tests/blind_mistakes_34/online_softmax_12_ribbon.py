# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) online_softmax_kernel: a block is added to d only `if top > m`; a block that does not raise the maximum is left out of the sum, so rows longer than one block (4096 columns) sum to more than 1 unless every block raises the maximum or the skipped ones vanish beside it; an `else` branch is missing that adds `tl.sum(tl.exp(x - m))` while m is finite. (2) online_softmax_kernel and softmax_forward: the kernel has one `stride`, that of x, and steps through out with it as well; wrong where rows of x and of out are not the same distance apart (padded x, padded out, also padded x without out) and there is more than one row: it stores between the rows of out and beyond them. Should be a second stride, `out.stride(0)`, for y_ptr.
"""Online softmax that rescales its sum only when the maximum rises."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride,
    BLOCK: tl.constexpr,
):
    """m and d of a row, then its shares."""
    row_start = tl.program_id(axis=0).to(tl.int64) * stride
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for first in range(0, n_cols, BLOCK):
        cols = first + lanes
        x = tl.load(x_ptr + row_start + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        top = tl.max(x, axis=0)
        # Nothing but -inf raises nothing, so no exponent is -inf minus -inf.
        if top > m:
            d = d * tl.exp(m - top) + tl.sum(tl.exp(x - top), axis=0)
            m = top
    for first in range(0, n_cols, BLOCK):
        cols = first + lanes
        x = tl.load(x_ptr + row_start + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptr + row_start + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """The dot product of a row of y and of dy, then its gradient."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    dot = 0.0
    for first in range(0, n_cols, BLOCK):
        cols = first + lanes
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dot += tl.sum(y * dy, axis=0)
    for first in range(0, n_cols, BLOCK):
        cols = first + lanes
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - dot)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 2, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 2, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
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
