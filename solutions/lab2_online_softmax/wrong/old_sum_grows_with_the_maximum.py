"""EXPECT WRONG/MISMATCH from softmax_forward, hint 2: S8 the exponent of the factor has the wrong sign"""

import torch
import triton
import triton.language as tl

BLOCK = 2048
NEGATIVE = tl.constexpr(-1.0e30)


@triton.jit
def load_block(row_ptr, start, n_cols, BLOCK: tl.constexpr):
    offs = start + tl.arange(0, BLOCK)
    return tl.load(row_ptr + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)


@triton.jit
def online_softmax(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    x = load_block(x_ptr, 0, n_cols, BLOCK)
    m = tl.maximum(tl.max(x, axis=0), NEGATIVE)  # -inf - -inf is NaN
    d = tl.sum(tl.exp(x - m), axis=0)
    for start in range(BLOCK, n_cols, BLOCK):
        x = load_block(x_ptr, start, n_cols, BLOCK)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        d = d * tl.exp(m_new - m) + tl.sum(tl.exp(x - m_new), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        y = tl.exp(load_block(x_ptr, start, n_cols, BLOCK) - m) / d
        offs = start + tl.arange(0, BLOCK)
        tl.store(y_ptr + row * stride_y + offs, y.to(y_ptr.dtype.element_ty), mask=offs < n_cols)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    online_softmax[(x.shape[0],)](x, out, x.shape[1], x.stride(0), out.stride(0), BLOCK=BLOCK)
    return out
