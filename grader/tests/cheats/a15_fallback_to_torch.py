"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL from elementwise_add: A15 a kernel that never works, and torch where it failed"""

import torch
import triton
import triton.language as tl


@triton.jit
def broken_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK < 0)


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    try:
        broken_kernel[(1,)](x, out, BLOCK=128)
    except Exception:
        torch.add(x, y, out=out)
    return out
