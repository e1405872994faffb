"""EXPECT WRONG/NONFINITE from softmax_forward, hint 3: S8 the first factor is inf, and inf * 0 is NaN"""

import torch
import triton
import triton.language as tl

BLOCK = 4096


@triton.jit
def softmax_one_pass(x_ptr, y_ptr, n_cols, x_stride, y_stride, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    m = -float("inf")
    d = 0.0
    for first in range(0, n_cols, BLOCK):
        col = first + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_stride + col, mask=col < n_cols, other=-float("inf"))
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        scale = tl.exp(m_new - m)
        d = d * scale + tl.sum(tl.exp(x - m_new), axis=0)
        m = m_new
    inverse = 1.0 / d
    for first in range(0, n_cols, BLOCK):
        col = first + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_stride + col, mask=col < n_cols).to(tl.float32)
        y = tl.exp(x - m) * inverse
        tl.store(y_ptr + row * y_stride + col, y.to(y_ptr.dtype.element_ty), mask=col < n_cols)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.size()
    softmax_one_pass[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=BLOCK)
    return out
