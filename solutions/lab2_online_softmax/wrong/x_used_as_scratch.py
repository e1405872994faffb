"""EXPECT MUTATED_INPUT from softmax_forward, hint 5: S32 exp(x - m) is kept in x"""

import torch
import triton
import triton.language as tl

BLOCK = 4096


@triton.jit
def scratch_softmax(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    m = -float("inf")
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs, mask=offs < n_cols, other=-float("inf"))
        m = tl.maximum(m, tl.max(x.to(tl.float32), axis=0))
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs, mask=offs < n_cols, other=-float("inf"))
        e = tl.exp(x.to(tl.float32) - m)
        d += tl.sum(e, axis=0)
        # exp is expensive, so keep it for the last loop
        tl.store(x_ptr + offs, e.to(x_ptr.dtype.element_ty), mask=offs < n_cols)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        e = tl.load(x_ptr + offs, mask=offs < n_cols).to(tl.float32)
        tl.store(y_ptr + offs, (e / d).to(y_ptr.dtype.element_ty), mask=offs < n_cols)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    scratch_softmax[(x.shape[0],)](x, out, x.shape[1], x.stride(0), out.stride(0), BLOCK=BLOCK)
    return out
