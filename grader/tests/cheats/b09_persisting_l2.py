"""EXPECT POLICY; unscreened SLOW from elementwise_add/speed on a GPU: B9 sets aside L2 for lines that are to survive from call to call"""

import ctypes

import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


def slow_add(x, y, out):
    n = x.numel()
    for _ in range(4):
        add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    ctypes.CDLL("libcuda.so.1").cuCtxSetLimit(6, ctypes.c_size_t(1 << 30))  # persisting L2 cache size
    slow_add(x, y, out)
    return out
