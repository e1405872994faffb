"""EXPECT POLICY; unscreened WRONG/UNWRITTEN or WRONG/NONDETERMINISTIC or POLICY/FOREIGN_KERNEL from elementwise_add: B2 a thread stores the sums some time after the answer, again and again"""

import threading
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


JOBS = []


def later():
    while True:
        for x, y, out in JOBS[-1:]:
            out.copy_(x + y)
        time.sleep(0.0002)


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    JOBS.append((x, y, out))
    if len(JOBS) == 1:
        threading.Thread(target=later, daemon=True).start()
    return out
