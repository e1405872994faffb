# labs/lab1_elementwise_add/elementwise_add.py | corner | Only n = 0 fails: in plan() the block is next_power_of_2(0) = 0, and cdiv divides by it (ZeroDivisionError) before the host function looks whether there are programs. n = 0 must be handled before, or the block be at least 1.
"""Add two vectors. Short vectors get a block of their own size, long ones blocks of 1024."""

import torch
import triton
import triton.language as tl

WIDEST = 1024


@triton.jit
def my_indices(n, BLOCK: tl.constexpr):
    """Offsets of this program, and which of them exist."""
    offsets = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    return offsets, offsets < n


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets, exists = my_indices(n, BLOCK)
    total = tl.load(x_ptr + offsets, mask=exists) + tl.load(y_ptr + offsets, mask=exists)
    tl.store(out_ptr + offsets, total, mask=exists)


def plan(n: int):
    """The width of a block for n elements, and the number of programs."""
    block = min(triton.next_power_of_2(n), WIDEST)
    return block, triton.cdiv(n, block)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y, into `out` or into a new tensor like x."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    block, programs = plan(n)
    if programs > 0:
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=block)
    return out
