# labs/lab2_online_softmax/online_softmax.py | corner | OnlineSoftmax.backward: dy is made contiguous only where dy.stride(-1) is 0, so an expanded gradient is handled, but a transposed one, or one with every second column of a wider matrix, is read as if its columns were contiguous; shows in the gradient of softmax for these layouts; should be dy.contiguous() always (or where dy.stride(-1) is not 1)
"""Softmax over rows with exp2, and its gradient."""

import torch
import triton
import triton.language as tl

MAX_BLOCK = 4096


@triton.jit
def exp_of(difference):
    """exp by way of exp2, which is one instruction on a GPU."""
    return tl.exp2(difference * 1.4426950408889634)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    x_ptr = x_ptr + i * stride_x
    y_ptr = y_ptr + i * stride_y
    m = -float("inf")
    d = 0.0
    for j in range(0, n_cols, BLOCK):
        cols = j + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_next = tl.maximum(m, tl.max(x, axis=0))
        pivot = tl.where(m_next == -float("inf"), 0.0, m_next)
        d = d * exp_of(m - pivot) + tl.sum(exp_of(x - pivot), axis=0)
        m = m_next
    for j in range(0, n_cols, BLOCK):
        cols = j + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = exp_of(x - m) / d
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    i = tl.program_id(0).to(tl.int64)
    dy_ptr = dy_ptr + i * stride_dy
    y_ptr = y_ptr + i * stride_y
    dx_ptr = dx_ptr + i * stride_dx
    dot = 0.0
    for j in range(0, n_cols, BLOCK):
        cols = j + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dot += tl.sum(dy * y, axis=0)
    for j in range(0, n_cols, BLOCK):
        cols = j + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = (dy - dot) * y
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def shape_of_launch(n_cols: int):
    """Block width and warps for rows of this length."""
    block = min(triton.next_power_of_2(n_cols), MAX_BLOCK)
    return block, (8 if block == MAX_BLOCK else 4)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of each row."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block, warps = shape_of_launch(n_cols)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax, from dy and the forward result."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block, warps = shape_of_launch(n_cols)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """The two functions above as one differentiable function."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        # sum() hands over one number, expanded
        if dy.stride(-1) == 0:
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax of each row."""
    return OnlineSoftmax.apply(x)
