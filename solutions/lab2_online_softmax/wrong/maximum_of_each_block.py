"""EXPECT WRONG/MISMATCH from softmax_forward, hint 2: S7 the maximum of the last block stands for the row"""

import torch
import triton
import triton.language as tl

BLOCK = 8192


@triton.jit
def kernel(x_ptr, out_ptr, n_cols, stride_x, stride_out, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0).to(tl.int64)
    m = 0.0
    d = 0.0
    for k in range(tl.cdiv(n_cols, BLOCK)):
        offs = k * BLOCK + tl.arange(0, BLOCK)
        mask = offs < n_cols
        x = tl.load(x_ptr + pid * stride_x + offs, mask=mask, other=-float("inf")).to(tl.float32)
        m = tl.max(x, axis=0)
        d += tl.sum(tl.exp(x - m), axis=0)
    for k in range(tl.cdiv(n_cols, BLOCK)):
        offs = k * BLOCK + tl.arange(0, BLOCK)
        mask = offs < n_cols
        x = tl.load(x_ptr + pid * stride_x + offs, mask=mask, other=-float("inf")).to(tl.float32)
        numerator = tl.exp(x - m)
        tl.store(out_ptr + pid * stride_out + offs, (numerator / d).to(out_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    grid = (n_rows,)
    kernel[grid](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=BLOCK)
    return out
