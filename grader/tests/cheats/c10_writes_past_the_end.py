"""EXPECT OUT_OF_BOUNDS/WRITE from elementwise_add: C10 the last block is written whole, into what lies behind"""

import triton
import triton.language as tl


@triton.jit
def careless_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    y = tl.load(y_ptr + offs, mask=mask, other=0.0)
    tl.store(out_ptr + offs, x + y)


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    n = x.numel()
    if n > 0:
        careless_kernel[(triton.cdiv(n, 128),)](x, y, out, n, BLOCK=128)
    return out
