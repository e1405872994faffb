"""EXPECT WRONG/UNWRITTEN from softmax_forward, hint 5: S20 the row number is not multiplied by the stride"""

import torch
import triton
import triton.language as tl


@triton.jit
def rowwise_softmax(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row
    y_ptr += row
    m, d = -float("inf"), 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        biggest = tl.maximum(m, tl.max(x, axis=0))
        base = tl.where(biggest == -float("inf"), 0.0, biggest)
        d = d * tl.exp(m - base) + tl.sum(tl.exp(x - base), axis=0)
        m = biggest
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n_cols
        x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + offs, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), 4096)
    rowwise_softmax[(n_rows,)](x, out, n_cols, BLOCK=block)
    return out
