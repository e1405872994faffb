# labs/lab2_online_softmax/online_softmax.py | error | softmax_backward_kernel converts dx to the type of the pointer, `dx.to(dx_ptr.dtype)`, in its store: that is a pointer type, to which a float cannot be cast, so the kernel does not compile (nor run in the interpreter). It should be `dx_ptr.dtype.element_ty`. Every call of softmax_backward and every gradient of softmax fails; the forward pass is right.
"""Softmax over rows with a fixed number of programs, each of which takes every n-th row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192
PROGRAMS = 4096  # at most so many programs at a time


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y = softmax(x) for the rows i, i + p, i + 2p, ... of program i of p."""
    cols = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        # Far below every finite number of a row, and finite: -inf minus it is -inf, never NaN.
        m = -1.0e38
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            x = tl.load(x_row + start + cols, mask=cols < n_cols - start, other=-float("inf"))
            x = x.to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), axis=0)
            m = m_new
        scale = 1.0 / d
        for start in range(0, n_cols, BLOCK):
            keep = cols < n_cols - start
            x = tl.load(x_row + start + cols, mask=keep, other=-float("inf")).to(tl.float32)
            tl.store(y_row + start + cols, tl.exp(x - m) * scale, mask=keep)
        row += tl.num_programs(0)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum of y * dy) for the same rows."""
    cols = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64)
    while row < n_rows:
        dy_row = dy_ptr + row * stride_dy
        y_row = y_ptr + row * stride_y
        dx_row = dx_ptr + row * stride_dx
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            keep = cols < n_cols - start
            dy = tl.load(dy_row + start + cols, mask=keep, other=0.0).to(tl.float32)
            y = tl.load(y_row + start + cols, mask=keep, other=0.0).to(tl.float32)
            s += tl.sum(y * dy, axis=0)
        for start in range(0, n_cols, BLOCK):
            keep = cols < n_cols - start
            dy = tl.load(dy_row + start + cols, mask=keep, other=0.0).to(tl.float32)
            y = tl.load(y_row + start + cols, mask=keep, other=0.0).to(tl.float32)
            dx = y * (dy - s)
            tl.store(dx_row + start + cols, dx.to(dx_ptr.dtype), mask=keep)
        row += tl.num_programs(0)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def plan(n_rows: int, n_cols: int, widest: int) -> tuple:
    """Grid, block and warps of a launch."""
    block = clamp(triton.next_power_of_2(n_cols), 16, widest)
    return (min(n_rows, PROGRAMS),), block, clamp(block // 512, 1, 16)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    grid, block, warps = plan(n_rows, n_cols, FORWARD_BLOCK)
    online_softmax_kernel[grid](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    grid, block, warps = plan(n_rows, n_cols, BACKWARD_BLOCK)
    softmax_backward_kernel[grid](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=warps,
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
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
