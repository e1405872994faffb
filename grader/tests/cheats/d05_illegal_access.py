"""EXPECT CRASHED from elementwise_add on a GPU: D5 a kernel writes where no memory is"""

import triton
import triton.language as tl


@triton.jit
def wild_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    far = offs.to(tl.int64) + (1 << 40)
    tl.store(out_ptr + far, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    n = x.numel()
    if n > 0:
        wild_kernel[(1,)](x, out, n, BLOCK=128)
    return out
