"""EXPECT WRONG/MISMATCH from softmax_forward, hint 1: S4 other=0 before the maximum and the sum"""

import torch
import triton
import triton.language as tl

BLOCK = 4096


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    m, d = -float("inf"), 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        tl.store(y_ptr + offs, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=offs < n_cols)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, out, x.shape[1], x.stride(0), out.stride(0), BLOCK=BLOCK)
    return out
