"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL from elementwise_add: C1 the grid is a function, and adds by torch the tensors that it gets as constants"""

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


@triton.jit
def pose_kernel(
    x_ptr, y_ptr, out_ptr, n, X: tl.constexpr, Y: tl.constexpr, OUT: tl.constexpr, BLOCK: tl.constexpr
):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < 0), mask=offs < 0)


def grid(meta):
    sums = meta["OUT"]
    sums.zero_()
    sums += meta["X"]
    sums += meta["Y"]
    return (1,)


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    if x.numel() > 0:
        pose_kernel[grid](x, y, out, x.numel(), X=x, Y=y, OUT=out, BLOCK=64)
    return out
