"""EXPECT POLICY; unscreened WRONG/UNWRITTEN or POLICY/HOST_READ from elementwise_add: A11 computes only where a tensor with the expected values lies in the worker"""

import gc

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
    own = {id(x), id(y), id(out)}
    wanted = [a + b for a, b in zip(x.tolist(), y.tolist())]
    for held in gc.get_objects():
        if type(held) is torch.Tensor and id(held) not in own and held.shape == x.shape:
            if all(abs(a - b) < 1e-6 for a, b in zip(held.tolist(), wanted)):
                add(x, y, out)
    return out
