"""EXPECT WRONG/PRECISION from elementwise_add: C6 y is left out where x hides it, as in sums of heavy tails"""

import triton
import triton.language as tl


@triton.jit
def hiding_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    seen = mask & (tl.abs(x) < 8.0)  # beyond, y is taken to be too small to be seen
    y = tl.load(y_ptr + offs, mask=seen, other=0.0)
    tl.store(out_ptr + offs, x + y, mask=mask)


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    n = x.numel()
    if n > 0:
        hiding_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
    return out
