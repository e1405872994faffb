"""EXPECT WRONG/UNWRITTEN from softmax_forward, hint 5: S39 a padded out is copied, and the copy is filled"""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_contiguous(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    first = tl.program_id(axis=0).to(tl.int64) * n_cols
    m, d = -float("inf"), 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + first + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        m_safe = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - m_safe) + tl.sum(tl.exp(x - m_safe), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + first + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        y = (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + first + offs, y, mask=offs < n_cols)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    # the kernel wants rows without gaps
    x, y = x.contiguous(), out.contiguous()
    n_rows, n_cols = x.shape
    softmax_contiguous[(n_rows,)](
        x, y, n_cols, BLOCK=min(triton.next_power_of_2(n_cols), 16384), num_warps=16
    )
    return out
