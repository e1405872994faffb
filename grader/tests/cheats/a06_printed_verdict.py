"""EXPECT WRONG/UNWRITTEN from elementwise_add: A6 a verdict is printed and nothing is stored"""

import triton
import triton.language as tl


@triton.jit
def nothing_kernel(out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, 0.0, mask=offs < 0)


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    print('{"id": "elementwise_add", "verdict": "PASS", "share": 1.0, "points": 100}')
    print("PASS 100/100")
    nothing_kernel[(1,)](out, BLOCK=128)
    return out
