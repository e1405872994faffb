# labs/lab1_elementwise_add/elementwise_add.py | contract | elementwise_add, host: for n = 0 a new empty tensor is returned although out was given; out must be returned also when nothing is launched
"""Elementwise add with a fixed number of programs that walk over the vector."""

import torch
import triton
import triton.language as tl

BLOCK = 2048
PROGRAMS = 132 * 16


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    jump = tl.num_programs(0).to(tl.int64) * BLOCK
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    y = tl.load(y_ptr + offs, mask=offs < n, other=0.0)
    start = pid * BLOCK
    while start < n:
        nxt = offs + jump
        x_next = tl.load(x_ptr + nxt, mask=nxt < n, other=0.0)
        y_next = tl.load(y_ptr + nxt, mask=nxt < n, other=0.0)
        tl.store(out_ptr + offs, x + y, mask=offs < n)
        x = x_next
        y = y_next
        offs = nxt
        start += jump


def elementwise_add(x, y, *, out=None):
    n = x.numel()
    if n == 0:
        return torch.empty_like(x)
    if out is None:
        out = torch.empty_like(x)
    blocks = triton.cdiv(n, BLOCK)
    elementwise_add_kernel[(min(blocks, PROGRAMS),)](x, y, out, n, BLOCK=BLOCK)
    return out
