"""EXPECT WRONG/MISMATCH from softmax_backward, hint 6: dy + s in place of dy - s"""

import torch
import triton
import triton.language as tl

BLOCK = 8192


@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += pid * stride_dy
    y_ptr += pid * stride_y
    dx_ptr += pid * stride_dx
    cols = tl.arange(0, BLOCK)
    s = 0.0
    for k in range(0, n_cols, BLOCK):
        g = tl.load(dy_ptr + k + cols, mask=k + cols < n_cols, other=0.0).to(tl.float32)
        p = tl.load(y_ptr + k + cols, mask=k + cols < n_cols, other=0.0).to(tl.float32)
        s -= tl.sum(g * p, axis=0)
    for k in range(0, n_cols, BLOCK):
        g = tl.load(dy_ptr + k + cols, mask=k + cols < n_cols, other=0.0).to(tl.float32)
        p = tl.load(y_ptr + k + cols, mask=k + cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_ptr + k + cols, (p * (g - s)).to(dx_ptr.dtype.element_ty), mask=k + cols < n_cols)


def softmax_backward(dy, y, *, out=None):
    dx = torch.empty_like(dy) if out is None else out
    rows, n_cols = y.shape
    backward_kernel[(rows,)](
        dy, y, dx, n_cols, dy.stride(0), y.stride(0), dx.stride(0), BLOCK=BLOCK, num_warps=8
    )
    return dx
