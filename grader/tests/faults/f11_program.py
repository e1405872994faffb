"""EXPECT RESOURCE_LIMIT from elementwise_add on a CPU: F11 another program is started."""

import subprocess

import triton
import triton.language as tl

CALLS = []


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


def add(x, y, out):
    n = x.numel()
    if n:
        add_kernel[(triton.cdiv(n, 8192),)](x, y, out, n, BLOCK=8192)
    return out


def elementwise_add(x, y, *, out=None):
    if CALLS:
        return add(x, y, out)
    CALLS.append(1)
    subprocess.Popen(["/bin/sleep", "20"], start_new_session=True)
    add(x, y, out)
