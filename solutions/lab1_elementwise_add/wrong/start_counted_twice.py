"""EXPECT OUT_OF_BOUNDS/READ from elementwise_add, hint 1: S20 y_ptr moves on, and so do its offsets"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def sum_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    block_start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    y_block_ptr = y_ptr + block_start
    offs = block_start + tl.arange(0, BLOCK)
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_block_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


def elementwise_add(x, y, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    if x.numel() == 0:
        return out
    sum_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, out, x.numel(), BLOCK=BLOCK)
    return out
