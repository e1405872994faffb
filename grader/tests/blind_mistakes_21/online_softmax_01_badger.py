# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In online_softmax_kernel, second loop, tl.exp is applied to an argument already multiplied by log2(e); it should be tl.exp2 as in the first loop. Each y but that of the maximum is too small, and rows with more than one column sum to less than 1.
"""Softmax with exp2, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def scores(row_ptr, cols, n_cols):
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] = softmax(x[i, :]); the powers are powers of two, which the hardware has as one instruction."""
    LOG2E: tl.constexpr = 1.4426950408889634
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = scores(x_row_ptr, start + lanes, n_cols)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        # as long as only -inf was seen, any finite shift will do
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp2((m - shift) * LOG2E) + tl.sum(tl.exp2((x - shift) * LOG2E), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = scores(x_row_ptr, cols, n_cols)
        y = tl.exp((x - m) * LOG2E) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        keep = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=keep, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=keep, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        keep = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=keep, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=keep, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=keep)


def width_and_warps(n_cols: int, widest: int, per_warp: int) -> tuple:
    block = min(triton.next_power_of_2(n_cols), widest)
    return block, min(max(block // per_warp, 1), 16)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block, warps = width_and_warps(n_cols, FORWARD_BLOCK, 1024)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block, warps = width_and_warps(n_cols, BACKWARD_BLOCK, 512)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
