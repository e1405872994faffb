"""EXPECT WRONG/MISMATCH from softmax, hint 7: softmax_backward is called with y first"""

import torch
import triton
import triton.language as tl

BLOCK = 4096


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    m, d = -float("inf"), 0.0
    for k in range(0, n_cols, BLOCK):
        offs = k + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for k in range(0, n_cols, BLOCK):
        offs = k + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptr + row * stride_y + offs, y.to(y_ptr.dtype.element_ty), mask=offs < n_cols)


@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, BLOCK: tl.constexpr):
    start = tl.program_id(axis=0).to(tl.int64) * n_cols
    s = 0.0
    for k in range(0, n_cols, BLOCK):
        offs = k + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + start + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * tl.load(y_ptr + start + offs, mask=offs < n_cols, other=0.0), axis=0)
    for k in range(0, n_cols, BLOCK):
        offs = k + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + start + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        dx = (dy - s) * tl.load(y_ptr + start + offs, mask=offs < n_cols, other=0.0)
        tl.store(dx_ptr + start + offs, dx.to(dx_ptr.dtype.element_ty), mask=offs < n_cols)


def backward_rows(dy, y):
    dx = torch.empty_like(y)
    backward_kernel[(y.shape[0],)](dy, y, dx, y.shape[1], BLOCK=BLOCK)
    return dx


class SoftmaxFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        softmax_kernel[(x.shape[0],)](x, y, x.shape[1], x.stride(0), y.stride(0), BLOCK=BLOCK)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return backward_rows(y, dy.contiguous())


def softmax(x):
    return SoftmaxFunction.apply(x)
