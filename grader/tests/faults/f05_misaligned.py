"""EXPECT CRASHED from elementwise_add on a GPU: F5 a kernel stores four bytes at an odd address."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    odd = (out_ptr.to(tl.int64) + 1).to(tl.pointer_type(tl.float32))
    tl.store(odd + 2 * offs, (x + y).to(tl.float32), mask=mask & (offs < tl.maximum(n // 4, 1)))


def elementwise_add(x, y, *, out=None):
    n = x.numel()
    if n:
        add_kernel[(triton.cdiv(n, 8192),)](x, y, out, n, BLOCK=8192)
    return out
