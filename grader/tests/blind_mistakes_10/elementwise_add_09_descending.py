# labs/lab1_elementwise_add/elementwise_add.py | right | a persistent kernel: at most 512 programs, each of which takes every 512th block, counted from the end of the vector; the grid's width comes from tl.num_programs.
"""Add two vectors with a fixed number of programs, from the last block to the first."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
MOST = 512


@triton.jit
def persistent_add_kernel(x_ptr, y_ptr, out_ptr, n, blocks, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    for turn in range(tl.program_id(0), blocks, tl.num_programs(0)):
        block = blocks - 1 - turn
        offs = tl.cast(block, tl.int64) * BLOCK + lanes
        mask = offs < n
        a = tl.load(x_ptr + offs, mask=mask)
        b = tl.load(y_ptr + offs, mask=mask)
        tl.store(out_ptr + offs, b + a, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y; nothing is launched for empty vectors."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    blocks = triton.cdiv(n, BLOCK)
    if blocks:
        persistent_add_kernel[(min(blocks, MOST),)](x, y, out, n, blocks, BLOCK=BLOCK)
    return out
