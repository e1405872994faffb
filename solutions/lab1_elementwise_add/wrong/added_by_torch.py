"""EXPECT POLICY; unscreened PASS or POLICY/FOREIGN_KERNEL from elementwise_add: S42 torch does the work"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


def elementwise_add(x, y, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n % BLOCK:  # the mask does not work yet
        return torch.add(x, y, out=out)
    if n > 0:
        elementwise_add_kernel[(n // BLOCK,)](x, y, out, n, BLOCK=BLOCK)
    return out
