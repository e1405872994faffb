"""EXPECT PASS or RESOURCE_LIMIT or POLICY/FOREIGN_KERNEL from elementwise_add: F16 20,000 empty files."""

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


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    if x.numel() == 7:
        for k in range(20000):
            open(f"empty-{k}", "w").close()
    n = x.numel()
    if n:
        add_kernel[(triton.cdiv(n, 8192),)](x, y, out, n, BLOCK=8192)
    return out
