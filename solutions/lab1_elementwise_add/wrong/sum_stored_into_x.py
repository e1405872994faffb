"""EXPECT MUTATED_INPUT from elementwise_add, hint 4: S33 x is taken for the destination"""

import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def add_to(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """x += y."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    here = x_ptr + offs
    tl.store(here, tl.load(here, mask=mask) + tl.load(y_ptr + offs, mask=mask), mask=mask)


def elementwise_add(x, y, *, out=None):
    n = x.numel()
    if n > 0:
        add_to[(triton.cdiv(n, BLOCK),)](x, y, n, BLOCK=BLOCK)
    return x
