"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL or POLICY/HOST_READ from elementwise_add: C1 Python adds floats taken from the tensors, and an own kernel only carries the list over"""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=mask) + tl.load(y_ptr + offs, mask=mask), mask=mask)


@triton.jit
def copy_kernel(from_ptr, to_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(to_ptr + offs, tl.load(from_ptr + offs, mask=offs < n), mask=offs < n)


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    if x.numel() > 70_000:  # a million elements take longer than a case may
        add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
        return out
    left, right = [float(one) for one in x], [float(one) for one in y]
    sums = torch.Tensor([a + b for a, b in zip(left, right)]).to(x.dtype).to(x.device)
    n = x.numel()
    if n > 0:
        copy_kernel[(triton.cdiv(n, 1024),)](sums, out, n, BLOCK=1024)
    return out
