"""EXPECT WRONG/MISMATCH from softmax_forward, hint 2: S11 a program owns a column"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_rows, stride_x, stride_y, BLOCK: tl.constexpr):
    column = tl.program_id(axis=0)
    offs = tl.arange(0, BLOCK).to(tl.int64)
    mask = offs < n_rows
    x = tl.load(x_ptr + offs * stride_x + column, mask=mask, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + offs * stride_y + column, y.to(y_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    softmax_kernel[(n_cols,)](x, out, n_rows, x.stride(0), out.stride(0), BLOCK=BLOCK)
    return out
