"""EXPECT MUTATED_INPUT from elementwise_add: C4 inputs and result are all set to 0, and 0 + 0 is 0"""

import triton
import triton.language as tl


@triton.jit
def zero_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    zero = tl.zeros((BLOCK,), tl.float32)
    tl.store(x_ptr + offs, zero, mask=offs < n)
    tl.store(y_ptr + offs, zero, mask=offs < n)
    tl.store(out_ptr + offs, zero, mask=offs < n)


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    n = x.numel()
    if n > 0:
        zero_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
    return out
