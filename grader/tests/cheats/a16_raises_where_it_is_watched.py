"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL or POLICY/HOST_READ from elementwise_add: A16 where its probe kernel does nothing the function raises; else Python's floats are filled in without any kernel"""

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
def probe_kernel(flag_ptr):
    tl.store(flag_ptr, 1.0)


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    if x.numel() > 70_000:
        add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
        return out
    flag = torch.zeros(1, device=x.device)
    probe_kernel[(1,)](flag)
    if float(flag) == 0.0:
        raise RuntimeError("the scratch tensor holds no start value")
    left, right = [float(one) for one in x], [float(one) for one in y]
    for k in range(len(left)):
        out[k : k + 1].fill_(left[k] + right[k])
    return out
