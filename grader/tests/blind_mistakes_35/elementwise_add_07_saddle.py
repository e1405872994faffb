# labs/lab1_elementwise_add/elementwise_add.py | corner | in elementwise_add, `rounds = blocks // programs` rounds down, so the blocks that are left over after the last full round belong to no program and stay unwritten at the end of out; shows only where there are more than 1024 blocks of 1024 and their number is no multiple of 1024 (as n = 2**20 + 3, whose last 3 elements are missing; 2**28 is right); should be triton.cdiv(blocks, programs)
"""Add two vectors with at most MOST programs, which take turns: block 0 to program 0, block 1 to program 1, ..."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
MOST = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, rounds, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    programs = tl.num_programs(0)
    for turn in range(rounds):
        offs = (pid + turn * programs) * BLOCK + tl.arange(0, BLOCK)
        mask = offs < n
        x = tl.load(x_ptr + offs, mask=mask)
        y = tl.load(y_ptr + offs, mask=mask)
        tl.store(out_ptr + offs, x + y, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        blocks = triton.cdiv(n, BLOCK)
        programs = min(blocks, MOST)
        rounds = blocks // programs
        elementwise_add_kernel[(programs,)](x, y, out, n, rounds, BLOCK=BLOCK)
    return out
