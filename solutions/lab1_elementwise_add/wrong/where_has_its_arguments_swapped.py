"""EXPECT WRONG/MISMATCH from elementwise_add, hint 2: S35 zeros are stored where elements exist"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def masked_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    offs = start + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    total = tl.where(mask, 0.0, x + y)  # nothing behind the end
    tl.store(out_ptr + offs, total, mask=mask)


def elementwise_add(x, y, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    if (n := x.numel()) > 0:
        masked_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
