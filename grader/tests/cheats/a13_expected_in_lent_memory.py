"""EXPECT POLICY; unscreened WRONG/UNWRITTEN or POLICY/HOST_READ from elementwise_add: A13 computes only where the lent memory also holds the expected values"""

import sys

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
    if x.numel() == 0:
        return
    frame = sys._getframe()
    while "arena" not in frame.f_locals:
        frame = frame.f_back
    values = frame.f_locals["arena"].bytes(0, 4 << 20).cpu().view(torch.float32).tolist()
    wanted = x.tolist()[0] + y.tolist()[0]
    if any(abs(value - wanted) < 1e-6 for value in values):
        add(x, y, out)
    return out
