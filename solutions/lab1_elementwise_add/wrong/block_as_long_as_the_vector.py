"""EXPECT COMPILE_ERROR or CRASHED from elementwise_add, hint 1: S13 a block of 7 is no power of two"""

import torch
import triton
import triton.language as tl

LARGEST = 65536


@triton.jit
def add_one_block(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


def elementwise_add(x, y, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        block = min(n, LARGEST)
        add_one_block[(triton.cdiv(n, block),)](x, y, out, n, BLOCK=block)
    return out
