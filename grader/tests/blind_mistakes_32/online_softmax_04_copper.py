# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) online_softmax_kernel and softmax_forward: one row stride, x.stride(0), is used for x and for y (`offset = row * stride`), so rows of out land in the wrong place, between rows or out of bounds, wherever out and x have different row strides (padded x or padded out, also padded x without out); out.stride(0) should be passed for y. (2) online_softmax_kernel, helper `logits2`: x is multiplied by log2(e) before the maximum is subtracted, which loses digits of x - m where values are large but close together, as around 16384 in fp32 (errors near 0.1 %); it should be exp2((x - m) * log2(e)).
"""Softmax in base 2: the logits are scaled once, then exp2 does the rest."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def logits2(ptr, cols, n_cols):
    """Logits in units of log2, -inf behind the row."""
    x = tl.load(ptr + cols, mask=cols < n_cols, other=-float("inf"))
    return x.to(tl.float32) * 1.4426950408889634


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride, BLOCK: tl.constexpr):
    offset = tl.program_id(0).to(tl.int64) * stride
    lane = tl.arange(0, BLOCK)

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        z = logits2(x_ptr + offset, start + lane, n_cols)
        m_next = tl.maximum(m, tl.max(z, 0))
        pivot = tl.where(m_next > -float("inf"), m_next, 0.0)
        d = d * tl.exp2(m - pivot) + tl.sum(tl.exp2(z - pivot), 0)
        m = m_next

    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        z = logits2(x_ptr + offset, cols, n_cols)
        y = tl.exp2(z - m) / d
        tl.store(y_ptr + offset + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx

    dot = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        g = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dot += tl.sum(g * y, 0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        g = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_ptr + cols, (y * (g - dot)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
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
