"""EXPECT OUT_OF_BOUNDS/WRITE from elementwise_add, hint 2: S3 the mask is true where nothing exists"""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    first = tl.program_id(axis=0).to(tl.int64) * BLOCK
    offs = first + tl.arange(0, BLOCK)
    # mask out everything behind the end, as numpy.ma does
    masked = offs >= n
    x = tl.load(x_ptr + offs, mask=masked)
    y = tl.load(y_ptr + offs, mask=masked)
    total = x + y
    tl.store(out_ptr + offs, total, mask=masked)


def elementwise_add(x, y, *, out=None):
    result = torch.empty_like(x) if out is None else out
    n = x.shape[0]
    block = 256
    if n > 0:
        add_kernel[(triton.cdiv(n, block),)](x, y, result, n, BLOCK=block)
    return result
