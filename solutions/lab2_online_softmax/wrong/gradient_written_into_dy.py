"""EXPECT MUTATED_INPUT from softmax, hint 5: S32 dy is overwritten with dx"""

import torch
import triton
import triton.language as tl


@triton.jit
def fwd(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    i, j = tl.program_id(axis=0).to(tl.int64), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i * stride_x + j, mask=j < n_cols, other=-float("inf")).to(tl.float32)
    p = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + i * stride_y + j, (p / tl.sum(p, axis=0)).to(y_ptr.dtype.element_ty), mask=j < n_cols)


@triton.jit
def bwd(y_ptr, dy_ptr, n_cols, stride_y, stride_dy, BLOCK: tl.constexpr):
    """dy becomes dx in place, which saves a tensor."""
    i, j = tl.program_id(axis=0).to(tl.int64), tl.arange(0, BLOCK)
    y = tl.load(y_ptr + i * stride_y + j, mask=j < n_cols, other=0.0).to(tl.float32)
    g = tl.load(dy_ptr + i * stride_dy + j, mask=j < n_cols, other=0.0).to(tl.float32)
    dx = y * (g - tl.sum(y * g, axis=0))
    tl.store(dy_ptr + i * stride_dy + j, dx.to(dy_ptr.dtype.element_ty), mask=j < n_cols)


class RowSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.empty_like(x)
        n = x.shape[1]
        fwd[(x.shape[0],)](x, y, n, x.stride(0), y.stride(0), BLOCK=triton.next_power_of_2(n), num_warps=16)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        n = y.shape[1]
        dy = dy.contiguous()
        bwd[(y.shape[0],)](y, dy, n, y.stride(0), dy.stride(0), BLOCK=triton.next_power_of_2(n), num_warps=16)
        return dy


def softmax(x):
    return RowSoftmax.apply(x)
