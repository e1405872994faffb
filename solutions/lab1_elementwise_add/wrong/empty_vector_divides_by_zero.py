"""EXPECT CRASHED from elementwise_add, hint 3: S40 the block of an empty vector has no lanes"""

import torch
import triton
import triton.language as tl

WIDEST = 4096


@triton.jit
def add_block(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x, y = tl.load(x_ptr + offs, mask=mask), tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


def elementwise_add(x, y, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    block = min(triton.next_power_of_2(n), WIDEST)  # no wider than needed
    programs = (n + block - 1) // block
    add_block[(programs,)](x, y, out, n, BLOCK=block)
    return out
