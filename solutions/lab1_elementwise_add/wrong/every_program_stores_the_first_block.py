"""EXPECT WRONG/UNWRITTEN from elementwise_add, hint 1: S20 the store lacks the start of the block"""

import torch
import triton
import triton.language as tl

BLOCK = 4096


@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    x_ptr += pid * BLOCK
    y_ptr += pid * BLOCK
    left = n - pid * BLOCK  # elements from here to the end
    mask = lane < left
    x = tl.load(x_ptr + lane, mask=mask)
    y = tl.load(y_ptr + lane, mask=mask)
    tl.store(out_ptr + lane, x + y, mask=mask)


def elementwise_add(x, y, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
