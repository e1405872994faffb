# labs/lab1_elementwise_add/elementwise_add.py | corner | In `shares`, `blocks // programs` rounds down; it should be `triton.cdiv(blocks, programs)`. It shows only where there are more than 1024 blocks and their number is no multiple of 1024 (n > 2^20, such as 2^20 + 3): the last blocks are unwritten; 2^28 and all shorter vectors are right.
"""Add two vectors: at most PROGRAMS programs, each of which walks through its own run of blocks."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
PROGRAMS = 1024


@triton.jit
def add_one_block(x_ptr, y_ptr, out_ptr, offs, n):
    """out = x + y at the elements offs that exist."""
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists, eviction_policy="evict_first")
    y = tl.load(y_ptr + offs, mask=exists, eviction_policy="evict_first")
    tl.store(out_ptr + offs, x + y, mask=exists)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    turns,  # blocks of one program
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns the blocks pid * turns to (pid + 1) * turns - 1."""
    first = tl.program_id(axis=0).to(tl.int64) * turns
    offs = first * BLOCK + tl.arange(0, BLOCK)
    for _ in range(0, turns):
        add_one_block(x_ptr, y_ptr, out_ptr, offs, n)
        offs += BLOCK


def shares(n: int):
    """Return the number of programs for n elements, and the blocks of each."""
    blocks = triton.cdiv(n, BLOCK)
    programs = min(blocks, PROGRAMS)
    return programs, blocks // programs


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        programs, turns = shares(n)
        elementwise_add_kernel[(programs,)](x, y, out, n, turns, BLOCK=BLOCK)
    return out
