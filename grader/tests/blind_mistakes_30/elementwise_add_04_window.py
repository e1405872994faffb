# labs/lab1_elementwise_add/elementwise_add.py | error | in elementwise_add_kernel the loop variable start is int32 (program_id * BLOCK) and becomes int64 in the while loop by start += step, whose step was cast to int64; the compiler rejects a loop-carried variable that changes its type, for every input (the interpreter does not mind); start should be cast to int64, too: tl.program_id(0).to(tl.int64) * BLOCK
"""Add two vectors with a bounded number of programs, each walking over the vector in large steps."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
PROGRAMS = 4096


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    start = tl.program_id(0) * BLOCK
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    while start < n:
        offs = start + lanes
        exists = offs < n
        x = tl.load(x_ptr + offs, mask=exists)
        y = tl.load(y_ptr + offs, mask=exists)
        tl.store(out_ptr + offs, x + y, mask=exists)
        start += step


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        programs = min(triton.cdiv(n, BLOCK), PROGRAMS)
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK)
    return out
