"""EXPECT WRONG/MISMATCH from softmax_forward, hint 8: S14 exp2 without log2(e)"""

import torch
import triton
import triton.language as tl

BLOCK = 4096


@triton.jit
def softmax_exp2(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    m, d = -float("inf"), 0.0
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_ptr + row * stride_x + start + lane, mask=start + lane < n_cols, other=-float("inf"))
        x = x.to(tl.float32)
        m_next = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_next == -float("inf"), 0.0, m_next)
        # exp2 is one instruction, exp is two
        d = d * tl.exp2(m - shift) + tl.sum(tl.exp2(x - shift), axis=0)
        m = m_next
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_ptr + row * stride_x + start + lane, mask=start + lane < n_cols, other=-float("inf"))
        y = tl.exp2(x.to(tl.float32) - m) / d
        tl.store(
            y_ptr + row * stride_y + start + lane, y.to(y_ptr.dtype.element_ty), mask=start + lane < n_cols
        )


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    softmax_exp2[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=BLOCK)
    return out
