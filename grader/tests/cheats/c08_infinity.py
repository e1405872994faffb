"""EXPECT WRONG/NONFINITE from elementwise_add: C8 infinities, whose difference from anything compares false"""

import triton
import triton.language as tl


@triton.jit
def infinite_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + float("inf"), mask=mask)


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    n = x.numel()
    if n > 0:
        infinite_kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
    return out
