"""EXPECT POLICY; unscreened RESOURCE_LIMIT from elementwise_add on a CPU: D2 a grandchild in a session of its own outlives the worker and holds its pipes"""

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


STARTED = []


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    if not STARTED:
        STARTED.append(os.fork())
        if STARTED[0] == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(20)
            os._exit(0)
        os.waitpid(STARTED[0], 0)
    add(x, y, out)
    return out
