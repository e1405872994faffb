"""EXPECT WRONG/MISMATCH from elementwise_add, hint 1: S20 only x moves on with the program"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0).to(tl.int64)
    r = tl.arange(0, BLOCK)
    offs = pid * BLOCK + r
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    y = tl.load(y_ptr + r, mask=mask, other=0.0)
    tl.store(out_ptr + offs, x + y, mask=mask)


def elementwise_add(x, y, *, out=None):
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n = x.numel()
    if n > 0:
        add_kernel[(triton.cdiv(n, BLOCK), 1, 1)](x, y, out, n, BLOCK=BLOCK)
    return out
