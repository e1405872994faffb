# labs/lab1_elementwise_add/elementwise_add.py | corner | elementwise_add_kernel numbers the blocks of its two-dimensional grid with `tl.program_id(0) * tl.num_programs(0) + tl.program_id(1)`; the factor should be the extent of axis 1, tl.num_programs(1); with up to 32 blocks axis 0 has one program and all is right, with 35 blocks of 1024 elements or more (n > 34816: 65537, 2^20 + 3) blocks are left out and stay unwritten (except for a few sizes, as where both extents are 32), in every dtype
"""Elementwise add on a grid of two axes: groups of up to 32 blocks."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
GROUP = 32


@triton.jit
def elementwise_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
):
    # Axis 0 counts the groups, axis 1 the blocks inside one.
    block = tl.program_id(0).to(tl.int64) * tl.num_programs(0) + tl.program_id(1)
    index = block * BLOCK + tl.arange(0, BLOCK)
    # The last group may have blocks past the end: all of their lanes are off.
    on = index < n
    total = tl.load(x_ptr + index, mask=on) + tl.load(y_ptr + index, mask=on)
    tl.store(out_ptr + index, total, mask=on)


def grid_for(n: int):
    blocks = triton.cdiv(n, BLOCK)
    return (triton.cdiv(blocks, GROUP), min(blocks, GROUP))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    out = torch.empty_like(x) if out is None else out
    if x.numel() > 0:
        elementwise_add_kernel[grid_for(x.numel())](x, y, out, x.numel(), BLOCK=BLOCK)
    return out
