"""EXPECT WRONG/UNWRITTEN from elementwise_add: C3 fresh memory is given back, in case an expected result was freed there"""

import torch
import triton
import triton.language as tl


@triton.jit
def touch_kernel(memory_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(memory_ptr + offs, tl.load(memory_ptr + offs, mask=offs < n), mask=offs < n)


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    found = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        touch_kernel[(triton.cdiv(n, 1024),)](found, n, BLOCK=1024)
    return found
