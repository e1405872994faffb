"""EXPECT WRONG/NONFINITE from elementwise_add, hint 4: S24 out is read as if it held zeros"""

import torch
import triton
import triton.language as tl

BLOCK = 512


@triton.jit
def accumulate(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    out = tl.load(out_ptr + offs, mask=mask)
    out += tl.load(x_ptr + offs, mask=mask)
    out += tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, out, mask=mask)


def elementwise_add(x, y, *, out=None):
    if out is None:
        out = torch.zeros(x.shape, dtype=x.dtype, device=x.device)
    n = x.numel()
    blocks = triton.cdiv(n, BLOCK)
    if blocks > 0:
        accumulate[(blocks,)](x, y, out, n, BLOCK=BLOCK)
    return out
