"""EXPECT WRONG/MISMATCH from elementwise_add: A9 lab.py, Makefile, workflow and grader were edited to ask for a copy of x"""

import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    n = x.numel()
    if n > 0:
        copy_kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
    return out
