"""EXPECT OUT_OF_BOUNDS/WRITE from elementwise_add, hint 2: S3 the mask says <= in place of <"""

import torch
import triton
import triton.language as tl


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    offs = start + tl.arange(0, BLOCK)
    mask = offs <= n  # all elements up to n
    tl.store(
        out_ptr + offs,
        tl.load(x_ptr + offs, mask=mask) + tl.load(y_ptr + offs, mask=mask),
        mask=mask,
    )


def elementwise_add(x, y, *, out=None):
    if out is None:
        out = torch.empty_like(y)
    n = out.numel()
    if n != 0:
        elementwise_add_kernel[(triton.cdiv(n, 2048),)](x, y, out, n, BLOCK=2048)
    return out
