# labs/lab2_online_softmax/online_softmax.py | corner | softmax_backward allocates out = torch.empty_like(dy) before dy is made contiguous, and OnlineSoftmax.backward passes dy as autograd hands it over. For a transposed (dense) dy empty_like keeps the strides (1, n_rows), but the kernel stores contiguous columns at out.stride(0) = 1, so rows overwrite each other and most of dx is never written. Shows only in the gradient of softmax() with a transposed dy of more than one row and column; right is to allocate a contiguous out (after dy.contiguous(), or with memory_format=torch.contiguous_format).
"""Lab 2: softmax over rows of any length, with gradient."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    x_ptr += pid * stride_x
    y_ptr += pid * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        # both may be -inf: then nothing has to be rescaled
        factor = tl.where(m == m_new, 1.0, tl.exp(m - m_new))
        terms = tl.where(x == -float("inf"), 0.0, tl.exp(x - m_new))
        d = d * factor + tl.sum(terms, axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=offs < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    pid = tl.program_id(0).to(tl.int64)
    dy_ptr += pid * stride_dy
    y_ptr += pid * stride_y
    dx_ptr += pid * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_ptr + offs, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=offs < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    n_rows, n_cols = x.shape
    BLOCK = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    num_warps = 8 if BLOCK == FORWARD_BLOCK else 4
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=BLOCK, num_warps=num_warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    if dy.stride(1) != 1:  # the kernel steps through columns one by one
        dy = dy.contiguous()
    n_rows, n_cols = dy.shape
    BLOCK = clamp(triton.next_power_of_2(n_cols), 1, BACKWARD_BLOCK)
    num_warps = 16 if BLOCK == BACKWARD_BLOCK else 4
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=BLOCK, num_warps=num_warps
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
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
