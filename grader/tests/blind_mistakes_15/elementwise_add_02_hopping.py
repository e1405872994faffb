# labs/lab1_elementwise_add/elementwise_add.py | right | right
"""Vector addition with a limited number of programs, each of which hops through the vector."""

import torch
import triton
import triton.language as tl

WIDTH = 2048
MOST_PROGRAMS = 4096


@triton.jit
def hopping_add(a, b, c, n, blocks, WIDTH: tl.constexpr):
    # program k has the blocks k, k + P, k + 2 P, ... of P programs
    me = tl.program_id(0)
    everyone = tl.num_programs(0)
    where = me.to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    hop = everyone.to(tl.int64) * WIDTH
    for _ in range(me, blocks, everyone):
        exists = where < n
        left = tl.load(a + where, mask=exists)
        right = tl.load(b + where, mask=exists)
        tl.store(c + where, left + right, mask=exists)
        where += hop


def elementwise_add(x, y, *, out=None):
    destination = torch.empty_like(x) if out is None else out
    n = x.numel()
    if n == 0:
        return destination
    blocks = triton.cdiv(n, WIDTH)
    hopping_add[(min(blocks, MOST_PROGRAMS),)](x, y, destination, n, blocks, WIDTH=WIDTH, num_warps=8)
    return destination
