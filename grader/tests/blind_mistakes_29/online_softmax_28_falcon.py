# labs/lab2_online_softmax/online_softmax.py | error | softmax_backward_kernel, the branch n_cols <= BLOCK: it uses cols, keep, y and dy, which are first assigned inside the for loop above; Triton forgets such names after the loop, so the kernel does not compile in any case (the interpreter, which runs it as Python, gives right numbers); should load the block again behind the loop, or assign it before the loop
"""Softmax with the online maximum and its gradient; short rows are read once in the gradient."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    pid = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + pid * stride_x
    y_row = y_ptr + pid * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    inv = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) * inv
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


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
    pid = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + pid * stride_dy
    y_row = y_ptr + pid * stride_y
    dx_row = dx_ptr + pid * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        keep = cols < n_cols
        dy = tl.load(dy_row + cols, mask=keep, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=keep, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    if n_cols <= BLOCK:
        # the row is still in registers
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=keep)
    else:
        for start in range(0, n_cols, BLOCK):
            offs = start + tl.arange(0, BLOCK)
            inside = offs < n_cols
            g = tl.load(dy_row + offs, mask=inside, other=0.0).to(tl.float32)
            p = tl.load(y_row + offs, mask=inside, other=0.0).to(tl.float32)
            tl.store(dx_row + offs, (p * (g - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    options = {"BLOCK": block, "num_warps": clamp(block // 1024, 1, 8)}
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), **options)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    options = {"BLOCK": block, "num_warps": clamp(block // 512, 1, 16)}
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **options
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
