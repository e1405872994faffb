"""EXPECT POLICY; unscreened CRASHED from elementwise_add: D8 computes only where a System V segment can be made that the next worker, and other students, find by its key"""

import ctypes

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


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    libc = ctypes.CDLL(None, use_errno=True)
    found = libc.shmget(0x7E57, 4096, 0o1666)
    print("segment", found, ctypes.get_errno(), flush=True)
    if found < 0:
        raise PermissionError("no segment")
    return add(x, y, out)
