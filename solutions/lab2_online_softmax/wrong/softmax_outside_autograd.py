"""EXPECT CRASHED from softmax, hint 7: softmax() calls the forward kernel, and autograd sees nothing"""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + pid * stride_x + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
    y = tl.exp(x - tl.max(x, axis=0))
    y /= tl.sum(y, axis=0)
    tl.store(y_ptr + pid * stride_y + offs, y.to(y_ptr.dtype.element_ty), mask=offs < n_cols)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = triton.next_power_of_2(n_cols)
    softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=8)
    return out


def softmax(x):
    return softmax_forward(x)
