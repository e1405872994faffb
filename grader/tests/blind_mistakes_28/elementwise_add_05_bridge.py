# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) elementwise_add_kernel numbers the blocks of a 2-D grid with tl.program_id(0) * tl.num_programs(0) + tl.program_id(1); it should be tl.num_programs(1). Shows where there are more than 32 blocks of 1024: for n = 65537 everything from element 38912 on is unwritten, for n = 2^20 + 3 blocks 32, 65, 98, ... are. (2) The load of y has no mask=exists: it reads behind the end of y whenever n is no multiple of 1024
"""Add two vectors with a grid of two axes."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
COLUMNS = 32


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """The blocks of the vector form the rows of a table with one program for each entry."""
    row = tl.program_id(axis=0)
    column = tl.program_id(axis=1)
    number = row * tl.num_programs(axis=0) + column
    offs = number.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = offs < n

    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs)
    tl.store(out_ptr + offs, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype."""
    if out is None:
        out = torch.empty_like(x)
    n = x.shape[0]
    if n != 0:
        blocks = triton.cdiv(n, BLOCK)
        grid = (triton.cdiv(blocks, COLUMNS), min(blocks, COLUMNS))
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)
    return out
