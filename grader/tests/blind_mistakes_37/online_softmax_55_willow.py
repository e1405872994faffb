# labs/lab2_online_softmax/online_softmax.py | contract | softmax_backward without `out` allocates its result with the strides of y, `torch.empty_strided(y.size(), y.stride(), ...)`. Where y is padded (row stride above n_cols, more than one row) the values are right, but the result is not contiguous, while the README asks for a new contiguous matrix. It should be torch.empty(y.shape, ...) or torch.empty_like. Shows only in softmax_backward without `out` with a padded y; softmax's own gradient (y contiguous) and all calls with `out` are right.
"""Softmax of rows, base 2 inside, and its gradient, whose second sweep runs from the end of the row to its start."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def load_block(row_ptr, cols, n_cols):
    """Columns of one row in fp32, 0 past its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)


@triton.jit
def exp_of(difference):
    """exp by way of exp2, which is what the hardware has."""
    return tl.exp2(difference * 1.4426950408889634)


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """Program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.where(cols < n_cols, load_block(x_row_ptr, cols, n_cols), -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * exp_of(m - shift) + tl.sum(exp_of(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        y = exp_of(load_block(x_row_ptr, cols, n_cols) - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


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
    """Program i owns row i: up the row for the sum, down again for dx, so that the last block is still in L1."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        s += tl.sum(load_block(y_row_ptr, cols, n_cols) * load_block(dy_row_ptr, cols, n_cols), axis=0)
    last = (n_cols - 1) // BLOCK * BLOCK
    for back in range(0, n_cols, BLOCK):
        cols = last - back + lanes
        dy = load_block(dy_row_ptr, cols, n_cols)
        y = load_block(y_row_ptr, cols, n_cols)
        tl.store(dx_row_ptr + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty(x.size(), dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = clamp(block // 1024, 1, 4)
    if block >= 16384:
        warps = 8
    strides = (x.stride(0), out.stride(0))
    online_softmax_kernel[(n_rows,)](x, out, n_cols, *strides, BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_strided(y.size(), y.stride(), dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = y.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, *strides, BLOCK=block, num_warps=clamp(block // 512, 4, 32)
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        (result,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
