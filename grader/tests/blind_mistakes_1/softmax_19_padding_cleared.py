# lab2/online_softmax.py | contract | softmax_kernel, second loop: it runs over range(0, stride_y, BLOCK) and stores with the mask offs < stride_y, so the elements between the rows of out (and behind the last row) are overwritten with 0; the n_cols results are right | "Do not touch the space between rows"; softmax_forward with a padded out (stride(0) > n_cols)
"""Softmax with rows of aligned length."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 2048
BACKWARD_BLOCK = 2048


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    source = x_ptr + row * stride_x
    target = y_ptr + row * stride_y
    m = tl.full((), -float("inf"), tl.float32)
    d = tl.full((), 0.0, tl.float32)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(source + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        s = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = tl.fma(d, tl.exp(m - s), tl.sum(tl.exp(x - s), axis=0))
        m = m_new
    for start in range(0, stride_y, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(source + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(target + offs, y.to(y_ptr.dtype.element_ty), mask=offs < stride_y)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    s = tl.full((), 0.0, tl.float32)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        ok = offs < n_cols
        dy = tl.load(dy_ptr + row * stride_dy + offs, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + offs, mask=ok, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        ok = offs < n_cols
        dy = tl.load(dy_ptr + row * stride_dy + offs, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + offs, mask=ok, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * stride_dx + offs, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=ok)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(FORWARD_BLOCK, triton.next_power_of_2(n_cols))
    softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(BACKWARD_BLOCK, triton.next_power_of_2(n_cols))
    softmax_backward_kernel[(n_rows,)](dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block)
    return out


class OnlineSoftmax(torch.autograd.Function):
    """The two functions above, tied together."""

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
