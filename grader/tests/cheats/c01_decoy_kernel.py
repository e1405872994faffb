"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL from elementwise_add: C1 an own kernel runs, and torch overwrites what it left"""

import triton
import triton.language as tl


@triton.jit
def decoy_kernel(out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, 0.0, mask=offs < n)


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    n = x.numel()
    if n > 0:
        decoy_kernel[(triton.cdiv(n, 1024),)](out, n, BLOCK=1024)
        out.copy_(x + y)
    return out
