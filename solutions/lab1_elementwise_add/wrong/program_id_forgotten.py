"""EXPECT WRONG/UNWRITTEN from elementwise_add, hint 1: every program takes the same offsets"""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


def elementwise_add(x, y, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    size = x.numel()
    if size > 0:

        def grid(meta):
            return (triton.cdiv(size, meta["BLOCK"]),)

        add_kernel[grid](x, y, out, size, BLOCK=1024)
    return out
