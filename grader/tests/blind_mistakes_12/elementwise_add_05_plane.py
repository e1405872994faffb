# labs/lab1_elementwise_add/elementwise_add.py | corner | the number of the program is made of two axes as p0 * num_programs(0) + p1 where it must be p0 * num_programs(1) + p1, so blocks are missing (others done twice) as soon as there are several rows of programs: n > 5120 (up to 4096, and mostly to 5120, it is right)
"""One of two adds I tried: programs in a plane (rows of WIDE programs) rather than in one long line."""

import torch
import triton
import triton.language as tl

BLOCK = 512  # elements of a program
WIDE = 8  # programs in a row of the grid


@triton.jit
def my_number():
    """Number of this program in the plane, counted row by row."""
    row = tl.program_id(axis=0)
    place = tl.program_id(axis=1)
    return row * tl.num_programs(axis=0) + place


@triton.jit
def add_in_plane(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = my_number().to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, total, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous vectors; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    blocks = triton.cdiv(n, BLOCK)
    # programs of the last row that have no block left are masked completely
    add_in_plane[(triton.cdiv(blocks, WIDE), WIDE)](x, y, out, n, BLOCK=BLOCK)
    return out
