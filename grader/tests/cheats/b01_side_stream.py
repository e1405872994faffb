"""EXPECT POLICY; unscreened WRONG/NONFINITE or WRONG/UNWRITTEN or POLICY/FOREIGN_KERNEL from elementwise_add on a GPU: B1 slow work on a side stream, which events on the main one would miss"""

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


def slow_add(x, y, out):
    n = x.numel()
    for _ in range(4):
        add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)


SIDE = torch.cuda.Stream()


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    with torch.cuda.stream(SIDE):
        slow_add(x, y, out)
    return out
