"""EXPECT CRASHED from elementwise_add on a GPU: F5 a kernel stores where nothing is mapped."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs + (1 << 40), x + y, mask=mask)


def elementwise_add(x, y, *, out=None):
    n = x.numel()
    if n:
        add_kernel[(triton.cdiv(n, 8192),)](x, y, out, n, BLOCK=8192)
    return out
