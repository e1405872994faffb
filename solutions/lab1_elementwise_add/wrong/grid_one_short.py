"""EXPECT WRONG/UNWRITTEN from elementwise_add, hint 3: S23 the grid is rounded down."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    total = tl.load(x_ptr + offs, mask=mask) + tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, total, mask=mask)


def elementwise_add(x, y, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    if x.numel():
        add_kernel[(max(1, x.numel() // 1024),)](x, y, out, x.numel(), BLOCK=1024)
    return out
