"""EXPECT POLICY; unscreened WRONG/NONFINITE or WRONG/UNWRITTEN from elementwise_add/speed on a GPU: B7 right until the warm-up must be over"""

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


STARTED = []


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    if not STARTED:
        STARTED.append(time.monotonic())
    if time.monotonic() - STARTED[0] < 0.1:
        add(x, y, out)
    return out
