# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | elementwise_add_kernel, the loop: x is replaced by the block fetched ahead before the store, so the next block of x is added to the current block of y; x = x_next must come after the store
"""Elementwise add with a fixed number of programs that walk over the vector."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
PROGRAMS = 132 * 16


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    # first block of this program
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    y = tl.load(y_ptr + offs, mask=offs < n, other=0.0)
    start = pid * BLOCK
    while start < n:
        # fetch what comes next while this block is added
        ahead = offs + step
        x_next = tl.load(x_ptr + ahead, mask=ahead < n, other=0.0)
        x = x_next
        y_next = tl.load(y_ptr + ahead, mask=ahead < n, other=0.0)
        tl.store(out_ptr + offs, x + y, mask=offs < n)
        y = y_next
        offs = ahead
        start += step


def elementwise_add(x, y, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        grid = (min(triton.cdiv(n, BLOCK), PROGRAMS),)
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)
    return out
