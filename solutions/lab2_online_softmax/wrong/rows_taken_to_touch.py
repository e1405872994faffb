"""EXPECT OUT_OF_BOUNDS/READ from softmax_forward, hint 5: S38 row i of x starts at i * n_cols"""

import torch
import triton
import triton.language as tl

BLOCK = 4096


@triton.jit
def online_kernel(x_ptr, y_ptr, n_cols, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * n_cols
    y_row = y_ptr + row * stride_y
    m, d = -float("inf"), 0.0
    start = 0
    while start < n_cols:
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        base = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - base) + tl.sum(tl.exp(x - base), axis=0)
        m = m_new
        start += BLOCK
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(y_row + offs, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=offs < n_cols)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    online_kernel[(x.shape[0],)](x, out, x.shape[1], out.stride(0), BLOCK=BLOCK)
    return out
