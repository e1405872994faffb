# labs/lab2_online_softmax/online_softmax.py | corner | merge() adds block_sum without bringing it to the new maximum: it should be block_sum * exp(block_max - shift). In rows longer than FORWARD_BLOCK (1024), a block whose maximum is below the running maximum counts too much, d is too large and the row sums to less than 1.
"""Softmax as a merge of (maximum, sum) pairs, one pair for each block of a row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 1024
BACKWARD_BLOCK = 2048


@triton.jit
def finite_or_zero(m):
    return tl.where(m == -float("inf"), 0.0, m)


@triton.jit
def summary(x):
    """Maximum of a block, and the sum of its exponentials."""
    block_max = tl.max(x, axis=0)
    return block_max, tl.sum(tl.exp(x - finite_or_zero(block_max)), axis=0)


@triton.jit
def merge(m, d, block_max, block_sum):
    """The pair for the columns seen so far, together with one more block."""
    m_new = tl.maximum(m, block_max)
    shift = finite_or_zero(m_new)
    return m_new, d * tl.exp(m - shift) + block_sum


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    src = x_ptr + row * stride_x + tl.arange(0, BLOCK)
    dst = y_ptr + row * stride_y + tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        real = tl.arange(0, BLOCK) < n_cols - start
        x = tl.load(src + start, mask=real, other=-float("inf")).to(tl.float32)
        block_max, block_sum = summary(x)
        m, d = merge(m, d, block_max, block_sum)
    for start in range(0, n_cols, BLOCK):
        real = tl.arange(0, BLOCK) < n_cols - start
        x = tl.load(src + start, mask=real, other=-float("inf")).to(tl.float32)
        tl.store(dst + start, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=real)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    dy_at = dy_ptr + row * stride_dy + lanes
    y_at = y_ptr + row * stride_y + lanes
    dx_at = dx_ptr + row * stride_dx + lanes
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        real = lanes < n_cols - start
        dy = tl.load(dy_at + start, mask=real, other=0.0).to(tl.float32)
        y = tl.load(y_at + start, mask=real, other=0.0).to(tl.float32)
        s = s + tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        real = lanes < n_cols - start
        dy = tl.load(dy_at + start, mask=real, other=0.0).to(tl.float32)
        y = tl.load(y_at + start, mask=real, other=0.0).to(tl.float32)
        tl.store(dx_at + start, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=real)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    strides = [t.stride(0) for t in (dy, y, out)]
    softmax_backward_kernel[(n_rows,)](dy, y, out, n_cols, *strides, BLOCK=block, num_warps=4)
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

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
