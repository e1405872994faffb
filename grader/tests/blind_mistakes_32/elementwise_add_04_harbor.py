# labs/lab1_elementwise_add/elementwise_add.py | error | In elementwise_add_kernel the first and last tile of a program are computed with / (pid * tiles / workers and (pid + 1) * tiles / workers), which gives floats in Triton, so offs is a block of fp32 and x_ptr + offs is refused (invalid operands: pointer and float32). Nothing compiles or runs, for every n >= 1. It should be // in both lines.
"""Add two vectors: a fixed crew of programs, each with an equal share of neighbouring tiles."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
CREW = 1056


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0).to(tl.int64)
    workers = tl.num_programs(axis=0)
    tiles = tl.cdiv(n, BLOCK)

    tile = pid * tiles / workers
    stop = (pid + 1) * tiles / workers
    while tile < stop:
        offs = tile * BLOCK + tl.arange(0, BLOCK)
        inside = offs < n
        x = tl.load(x_ptr + offs, mask=inside)
        y = tl.load(y_ptr + offs, mask=inside)
        tl.store(out_ptr + offs, x + y, mask=inside)
        tile += 1


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    result = torch.empty_like(x) if out is None else out
    n = x.numel()
    if n:
        workers = min(CREW, triton.cdiv(n, BLOCK))
        elementwise_add_kernel[(workers,)](x, y, result, n, BLOCK=BLOCK)
    return result
