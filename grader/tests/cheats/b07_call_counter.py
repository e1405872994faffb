"""EXPECT POLICY; unscreened WRONG/UNWRITTEN or WRONG/NONDETERMINISTIC from elementwise_add: B7 right twice, and then no more"""

import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


def add(x, y, out):
    n = x.numel()
    if n > 0:
        add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)


CALLS = [0]


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    CALLS[0] += x.numel() > 0
    if CALLS[0] <= 2:
        add(x, y, out)
    return out
