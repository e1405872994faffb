"""EXPECT PASS from elementwise_add: A4 twin, an exception leaves the function where shapes are wrong, and only there"""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


def add(x, y, out):
    n = x.numel()
    if n > 0:
        add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)


def elementwise_add(x, y, *, out=None):
    if x.shape != y.shape:
        raise ValueError("x and y differ in shape")
    if out is None:
        out = torch.empty_like(x)
    add(x, y, out)
    return out
