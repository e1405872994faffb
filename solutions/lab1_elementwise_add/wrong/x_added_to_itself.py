"""EXPECT WRONG/MISMATCH from elementwise_add, hint 1: the second load is a copy of the first"""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out = x + y, a block for each program."""
    pid = tl.program_id(axis=0)
    offs = pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(x_ptr + offs, mask=mask)
    out = x + y
    tl.store(out_ptr + offs, out, mask=mask)


def elementwise_add(x, y, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    num_programs = triton.cdiv(n, BLOCK)
    if num_programs > 0:
        elementwise_add_kernel[(num_programs,)](x, y, out, n, BLOCK=BLOCK, num_warps=8)
    return out
