"""EXPECT POLICY; unscreened OUT_OF_MEMORY/HOST or RESOURCE_LIMIT from elementwise_add: D3 memory is taken in memfd files that are never mapped, so that no count of the process shows it"""

import os
import time

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


KEPT = []


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    block = bytes(16 << 20)
    while len(KEPT) < 6:
        descriptor = os.memfd_create("kept")
        for _ in range(12):
            os.write(descriptor, block)
        KEPT.append(descriptor)
    time.sleep(0.6)
    return add(x, y, out)
