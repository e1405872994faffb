"""EXPECT OUT_OF_BOUNDS/READ from softmax_forward, hint 1: S1 the first sweep has no mask"""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def fold(m, d, x):
    """m and d after one more block."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    return m_new, d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_ptr + pid * stride_x + start + cols).to(tl.float32)
        m, d = fold(m, d, x)
    for start in range(0, n_cols, BLOCK):
        mask = start + cols < n_cols
        x = tl.load(x_ptr + pid * stride_x + start + cols, mask=mask).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptr + pid * stride_y + start + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=BLOCK, num_warps=4)
    return out
