# labs/lab1_elementwise_add/elementwise_add.py | corner | In block_of_program `tl.program_id(axis=0).to(tl.int64) * tl.num_programs(axis=0) + tl.program_id(axis=1)` multiplies by the number of groups; it should be `tl.num_programs(axis=1)`, the blocks of a group. Right with one group; from more than 66 blocks (n > 67584, as 2^20 + 3) on blocks are done twice and others stay unwritten.
"""Add two vectors on a grid of two axes: groups of blocks, and blocks within a group."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
GROUP = 64  # blocks of one group


@triton.jit
def block_of_program():
    """Number of the block of this program; axis 0 counts the groups, axis 1 the blocks within one."""
    return tl.program_id(axis=0).to(tl.int64) * tl.num_programs(axis=0) + tl.program_id(axis=1)


@triton.jit
def grouped_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i] for the BLOCK elements of this program, as far as they exist."""
    first = block_of_program() * BLOCK
    offs = first + tl.arange(0, BLOCK)
    exists = offs < n
    total = tl.load(x_ptr + offs, mask=exists) + tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, total, mask=exists)


def grid_for(n: int) -> tuple:
    """(groups, blocks in a group): the long axis is the first, which CUDA limits to 2^31 - 1 only."""
    blocks = triton.cdiv(n, BLOCK)
    return (triton.cdiv(blocks, GROUP), min(blocks, GROUP))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        grouped_add_kernel[grid_for(n)](x, y, out, n, BLOCK=BLOCK, num_warps=4)
    return out
