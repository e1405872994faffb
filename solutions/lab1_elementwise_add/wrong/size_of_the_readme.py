"""EXPECT OUT_OF_BOUNDS/WRITE from elementwise_add, hint 2: S29 the size is a constant of the file"""

import torch
import triton
import triton.language as tl

N = 65537  # largest vector that came up in the tests
BLOCK = 1024


@triton.jit
def add_vectors(a_ptr, b_ptr, sum_ptr, BLOCK: tl.constexpr, SIZE: tl.constexpr):
    program = tl.program_id(axis=0).to(tl.int64)
    offs = program * BLOCK + tl.arange(0, BLOCK)
    valid = offs < SIZE
    a = tl.load(a_ptr + offs, mask=valid)
    b = tl.load(b_ptr + offs, mask=valid)
    tl.store(sum_ptr + offs, a + b, mask=valid)


def elementwise_add(x, y, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    if x.numel() > 0:
        grid = (triton.cdiv(x.numel(), BLOCK),)
        add_vectors[grid](x, y, out, BLOCK=BLOCK, SIZE=N)
    return out
