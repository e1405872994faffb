# labs/lab2_online_softmax/online_softmax.py | corner | softmax_backward_kernel: `s = 0.0` stands before the `while` loop over the rows of a program and is never set back, so the sum of a program's second and later rows still holds the sums of its earlier rows. Wrong only where n_rows > PROGRAMS (264), and there from row 264 on; it should stand inside the `while` loop. Shows in softmax_backward and in the gradient of softmax(); the forward pass is right.
"""Softmax and its gradient with a fixed number of programs, each of which walks over several rows."""

import torch
import triton
import triton.language as tl

PROGRAMS = 264  # two for each multiprocessor of an H200
FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program p owns the rows p, p + number of programs, and so on."""
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            tl.store(y_row + cols, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(axis=0)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """Program p owns the rows p, p + number of programs, and so on."""
    row = tl.program_id(axis=0).to(tl.int64)
    s = 0.0
    while row < n_rows:
        dy_row = dy_ptr + row * stride_dy
        y_row = y_ptr + row * stride_y
        dx_row = dx_ptr + row * stride_dx
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            s += tl.sum(dy * y, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(axis=0)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    grid = (min(n_rows, PROGRAMS),)
    online_softmax_kernel[grid](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=clamp(block // 512, 1, 16)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, BACKWARD_BLOCK)
    grid = (min(n_rows, PROGRAMS),)
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
        num_warps=clamp(block // 256, 1, 32),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
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
