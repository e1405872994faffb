# labs/lab2_online_softmax/online_softmax.py | corner | online_softmax_kernel, first loop, other=-65504.0: lanes past the end carry the lowest fp16 number, which is not below everything: a row that lies near or below -65504 throughout (the lowest of fp16, or far below 0 in fp32) gets these lanes in its maximum and its sum. It should be other=-float("inf").
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl
from triton import next_power_of_2

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 4096


@triton.jit
def rescale(m_old, m_new, d):
    """d relative to m_new, and the shift that belongs to it."""
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    return d * tl.exp(m_old - shift), shift


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns row i."""
    i = tl.program_id(axis=0).to(tl.int64)
    x_ptrs = x_ptr + i * stride_x + tl.arange(0, BLOCK)
    y_ptrs = y_ptr + i * stride_y + tl.arange(0, BLOCK)

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        here = start + tl.arange(0, BLOCK) < n_cols
        x = tl.load(x_ptrs + start, mask=here, other=-65504.0).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        d, shift = rescale(m, m_new, d)
        d += tl.sum(tl.exp(x - shift), axis=0)
        m = m_new

    for start in range(0, n_cols, BLOCK):
        here = start + tl.arange(0, BLOCK) < n_cols
        x = tl.load(x_ptrs + start, mask=here, other=-65504.0).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptrs + start, y.to(y_ptr.dtype.element_ty), mask=here)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """Program i owns row i."""
    i = tl.program_id(axis=0).to(tl.int64)
    dy_ptrs = dy_ptr + i * stride_dy + tl.arange(0, BLOCK)
    y_ptrs = y_ptr + i * stride_y + tl.arange(0, BLOCK)
    dx_ptrs = dx_ptr + i * stride_dx + tl.arange(0, BLOCK)

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        here = start + tl.arange(0, BLOCK) < n_cols
        dy = tl.load(dy_ptrs + start, mask=here, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + start, mask=here, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)

    for start in range(0, n_cols, BLOCK):
        here = start + tl.arange(0, BLOCK) < n_cols
        dy = tl.load(dy_ptrs + start, mask=here, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + start, mask=here, other=0.0).to(tl.float32)
        dx = (dy - s) * y
        tl.store(dx_ptrs + start, dx.to(dx_ptr.dtype.element_ty), mask=here)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    assert x.ndim == 2, f"a matrix is expected, not {x.ndim} dimensions"
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=min(max(block // 1024, 1), 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    assert dy.shape == y.shape, f"shapes {dy.shape} and {y.shape} differ"
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=min(max(block // 512, 1), 8),
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
        if not dy.is_contiguous():
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
