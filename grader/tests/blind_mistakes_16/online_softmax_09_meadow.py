# labs/lab2_online_softmax/online_softmax.py | corner | online_softmax_kernel computes y as tl.exp(x - lse) with lse = m + tl.log(d): where the row is far from 0 (thousands and more), the sum rounds log(d) away and rows no longer sum to 1. It should be tl.exp(x - m) / d.
"""Online softmax: one sweep for the normaliser of the row, one for the result."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def load_row(row_ptr, cols, n_cols, fill):
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=fill).to(tl.float32)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = load_row(x_row_ptr, start + lane, n_cols, -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new > -float("inf"), m_new, 0.0)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    lse = m + tl.log(d)
    for start in range(0, n_cols, BLOCK):
        x = load_row(x_row_ptr, start + lane, n_cols, -float("inf"))
        y = tl.exp(x - lse)
        tl.store(y_row_ptr + start + lane, y.to(y_ptr.dtype.element_ty), mask=start + lane < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        dy = load_row(dy_row_ptr, start + lane, n_cols, 0.0)
        y = load_row(y_row_ptr, start + lane, n_cols, 0.0)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        dy = load_row(dy_row_ptr, start + lane, n_cols, 0.0)
        y = load_row(y_row_ptr, start + lane, n_cols, 0.0)
        dx = (dy - s) * y
        tl.store(dx_row_ptr + start + lane, dx.to(dx_ptr.dtype.element_ty), mask=start + lane < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = clamp(block // 1024, 1, 8)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = clamp(block // 512, 4, 16)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), block, num_warps=warps
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
