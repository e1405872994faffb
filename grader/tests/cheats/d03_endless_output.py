"""EXPECT WRONG/UNWRITTEN from elementwise_add: D3 prints 64 MiB, to fill a log or to block on a full pipe"""

import triton
import triton.language as tl


@triton.jit
def nothing_kernel(out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, 0.0, mask=offs < 0)


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    for _ in range(64):
        print("PASS " * 200_000)
    nothing_kernel[(1,)](out, BLOCK=128)
    return out
