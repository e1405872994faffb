# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) online_softmax_kernel: the rescaling factor tl.exp2(m - shift) lacks LOG2E and is too large, so rows of more than one block whose maximum rises after the first block get too large a d (rows sum to less than 1); it should be tl.exp2((m - shift) * LOG2E). (2) softmax_backward_kernel: dx_row uses stride_dy, so rows go to wrong places where out has another row stride than dy; it should be the row stride of out.
"""Softmax by powers of two, which is what the hardware has, and its gradient."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 2048
BACKWARD_BLOCK = 2048
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """exp(t) is computed as exp2(t * log2(e)); the difference is taken first, so that no digits are lost."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        p = tl.exp2((x - shift) * LOG2E)
        alpha = tl.exp2(m - shift)
        d = d * alpha + tl.sum(p, axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp2((x - m) * LOG2E) / d
        tl.store(y_row_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=offs < n_cols)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, BLOCK: tl.constexpr):
    """dx = y * (dy - sum of y * dy); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dy
    dot = 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        live = offs < n_cols
        dy = tl.load(dy_row + offs, mask=live, other=0.0).to(tl.float32)
        y = tl.load(y_row + offs, mask=live, other=0.0).to(tl.float32)
        dot += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        live = offs < n_cols
        dy = tl.load(dy_row + offs, mask=live, other=0.0).to(tl.float32)
        y = tl.load(y_row + offs, mask=live, other=0.0).to(tl.float32)
        dx = y * (dy - dot)
        tl.store(dx_row + offs, dx.to(dx_ptr.dtype.element_ty), mask=live)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 16, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = y.shape
    block = clamp(triton.next_power_of_2(n_cols), 16, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), BLOCK=block, num_warps=4
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
