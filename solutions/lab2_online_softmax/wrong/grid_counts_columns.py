"""EXPECT WRONG/UNWRITTEN from softmax_forward, hint 5: S23 as many programs as columns, not as rows"""

import torch
import triton
import triton.language as tl

BLOCK = 131072


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0).to(tl.int64)
    if pid < n_rows:
        offs = tl.arange(0, BLOCK)
        mask = offs < n_cols
        x = tl.load(x_ptr + pid * stride_x + offs, mask=mask, other=-float("inf")).to(tl.float32)
        numerator = tl.exp(x - tl.max(x, axis=0))
        y = numerator / tl.sum(numerator, axis=0)
        tl.store(y_ptr + pid * stride_y + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    softmax_kernel[(n_cols,)](x, out, n_rows, n_cols, x.stride(0), out.stride(0), BLOCK=BLOCK, num_warps=32)
    return out
