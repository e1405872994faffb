"""EXPECT OUT_OF_BOUNDS/WRITE or CRASHED from elementwise_add: F6 one call in two stores far outside, as a compiler bug would have it."""

CALLS = []
import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, wild, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs + wild, x + y, mask=mask)


def elementwise_add(x, y, *, out=None):
    CALLS.append(n := x.numel())
    wild = len(CALLS) % 2 == 0
    n = x.numel()
    if n:
        add_kernel[(triton.cdiv(n, 8192),)](x, y, out, n, int(wild) << 44, BLOCK=8192)
    return out
