# labs/lab2_online_softmax/online_softmax.py | error | softmax_backward, triton.cdiv(n_cols, 128) * 128: the block is a multiple of 128 but not always a power of two (2600 columns give 2688), and tl.arange then refuses to compile. It should be triton.next_power_of_2(n_cols).
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
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
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + col, mask=col < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        # only -inf so far: every term is 0, whatever finite number is subtracted
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new

    for start in range(0, n_cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + col, mask=col < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(y_row_ptr + col, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=col < n_cols)


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
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx

    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
        acc += dy * y
    s = tl.sum(acc, axis=0)

    for start in range(0, n_cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + col, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=col < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 128, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = clamp(triton.cdiv(n_cols, 128) * 128, 128, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=4
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
