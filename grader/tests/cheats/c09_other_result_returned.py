"""EXPECT WRONG/UNWRITTEN from elementwise_add: C9 a tensor of another dtype and shape is returned, and `out` left alone"""

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
    out = x.new_empty(x.shape) if out is None else out
    other = torch.empty((2, x.numel()), dtype=torch.float64, device=x.device)
    add(x, y, other)
    return other
