"""EXPECT SLOW from elementwise_add/speed, hint 5 on a GPU: S57 the lanes of a program are a grid apart"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def strided_add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    # program p takes elements p, p + programs, p + 2 * programs, ...
    programs = tl.num_programs(axis=0).to(tl.int64)
    offs = tl.program_id(axis=0) + tl.arange(0, BLOCK) * programs
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


def elementwise_add(x, y, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        strided_add[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
