"""EXPECT TIMEOUT from elementwise_add: D1 a kernel waits for a value that never comes"""

import triton
import triton.language as tl


@triton.jit
def waiting_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    seen = tl.load(x_ptr)
    while seen < 1e30:
        tl.store(out_ptr + offs, seen, mask=offs < n)
        seen = tl.load(x_ptr, volatile=True)


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    n = x.numel()
    if n > 0:
        waiting_kernel[(1,)](x, out, n, BLOCK=128)
    return out
