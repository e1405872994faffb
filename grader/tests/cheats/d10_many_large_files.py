"""EXPECT POLICY; unscreened RESOURCE_LIMIT from elementwise_add: D10 five files of 200 MiB, each within the limit of one"""

import os
import time

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


DONE = []


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    names = [] if DONE else [f"large{k}" for k in range(5)]
    for name in names:
        with open(name, "wb") as file:
            for _ in range(20):
                file.write(bytes(10 << 20))
    time.sleep(2.0 if names else 0.0)
    for name in names:
        os.remove(name)
    DONE.append(True)
    add(x, y, out)
    return out
