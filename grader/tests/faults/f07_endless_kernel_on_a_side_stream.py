"""EXPECT TIMEOUT from elementwise_add on a GPU: F7 a kernel that never ends and that the function does not wait for."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    i = 0.0
    while i != 12345.0:
        i = tl.atomic_add(out_ptr, 0.0)
    tl.store(out_ptr + offs, x + y, mask=mask)


def elementwise_add(x, y, *, out=None):
    n = x.numel()
    if n:
      with torch.cuda.stream(torch.cuda.Stream()):
        add_kernel[(triton.cdiv(n, 8192),)](x, y, out, n, BLOCK=8192)
    return out
