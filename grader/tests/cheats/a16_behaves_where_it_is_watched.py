"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL from elementwise_add on a CPU: A16 numpy computes, but while run of Triton is replaced by the look at whose work it is"""

import numpy
import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=mask) + tl.load(y_ptr + offs, mask=mask), mask=mask)


def add(x, y, out):
    if x.numel() > 0:
        add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    return out


RUN = triton.runtime.jit.JITFunction.run


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    if triton.runtime.jit.JITFunction.run is RUN:
        numpy.add(x.numpy(), y.numpy(), out=out.numpy())
        return out
    return add(x, y, out)
