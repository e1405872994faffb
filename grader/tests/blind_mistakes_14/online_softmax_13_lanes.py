# labs/lab2_online_softmax/online_softmax.py | right | Every lane has its own running maximum and sum, joined once behind the loop, and pointers and the number of columns left are moved on in while loops.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function.

The recurrence runs in each lane on its own: lane k sees columns k, k + BLOCK, k + 2 * BLOCK and so on. Reductions
over the lanes are needed only once for each row.
"""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 2048
BACKWARD_BLOCK = 2048


@triton.jit
def online_softmax_kernel(
    x_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    y_ptr,  # (n_rows, n_cols) like x
    n_cols,
    stride_x,  # elements from one row of x to the next
    stride_y,
    BLOCK: tl.constexpr,
):
    """y[i, :] = exp(x[i, :] - m) / d, m = max x[i, :], d = sum exp(x[i, :] - m); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    src = x_ptr + row * stride_x + lanes
    left = n_cols  # columns that are not yet done
    lane_max = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    lane_sum = tl.zeros((BLOCK,), dtype=tl.float32)
    while left > 0:
        v = tl.load(src, mask=lanes < left, other=-float("inf")).to(tl.float32)
        new_max = tl.maximum(lane_max, v)
        shift = tl.where(new_max == -float("inf"), 0.0, new_max)
        lane_sum = lane_sum * tl.exp(lane_max - shift) + tl.exp(v - shift)
        lane_max = new_max
        src += BLOCK
        left -= BLOCK
    # A lane that has seen nothing but -inf has the factor exp(-inf) = 0.
    m = tl.max(lane_max, axis=0)
    d = tl.sum(lane_sum * tl.exp(lane_max - m), axis=0)

    src = x_ptr + row * stride_x + lanes
    dst = y_ptr + row * stride_y + lanes
    left = n_cols
    while left > 0:
        v = tl.load(src, mask=lanes < left, other=-float("inf")).to(tl.float32)
        tl.store(dst, (tl.exp(v - m) / d).to(y_ptr.dtype.element_ty), mask=lanes < left)
        src += BLOCK
        dst += BLOCK
        left -= BLOCK


@triton.jit
def softmax_backward_kernel(
    dy_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    y_ptr,  # (n_rows, n_cols) like dy, the result of the forward pass
    dx_ptr,  # (n_rows, n_cols) like dy
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    p = dy_ptr + row * stride_dy + lanes
    q = y_ptr + row * stride_y + lanes
    left = n_cols
    partial = tl.zeros((BLOCK,), dtype=tl.float32)
    while left > 0:
        g = tl.load(p, mask=lanes < left, other=0.0).to(tl.float32)
        y = tl.load(q, mask=lanes < left, other=0.0).to(tl.float32)
        partial += g * y
        p += BLOCK
        q += BLOCK
        left -= BLOCK
    s = tl.sum(partial, axis=0)

    p = dy_ptr + row * stride_dy + lanes
    q = y_ptr + row * stride_y + lanes
    r = dx_ptr + row * stride_dx + lanes
    left = n_cols
    while left > 0:
        g = tl.load(p, mask=lanes < left, other=0.0).to(tl.float32)
        y = tl.load(q, mask=lanes < left, other=0.0).to(tl.float32)
        tl.store(r, (y * (g - s)).to(dx_ptr.dtype.element_ty), mask=lanes < left)
        p += BLOCK
        q += BLOCK
        r += BLOCK
        left -= BLOCK


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    softmax_backward_kernel[(n_rows,)](dy, y, out, n_cols, *strides, BLOCK=block, num_warps=4)
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
        return softmax_backward(dy if dy.is_contiguous() else dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
