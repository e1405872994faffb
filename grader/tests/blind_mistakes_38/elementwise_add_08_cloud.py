# labs/lab1_elementwise_add/elementwise_add.py | contract | elementwise_add allocates the new tensor with torch.empty(x.shape, device=x.device), without dtype=x.dtype, so a call without out on fp16 or bf16 returns an fp32 tensor (its numbers are right, and with out or in fp32 all is right); README: a new tensor like x; should be torch.empty_like(x)
"""Add two vectors; the width of a block follows their length."""

import torch
import triton
import triton.language as tl

NARROWEST = 128
WIDEST = 2048


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    begin = tl.program_id(axis=0).to(tl.int64) * BLOCK
    mine = begin + tl.arange(0, BLOCK)
    exists = mine < n
    x = tl.load(x_ptr + mine, mask=exists)
    y = tl.load(y_ptr + mine, mask=exists)
    tl.store(out_ptr + mine, x + y, mask=exists)


def block_for(n):
    """Short vectors get one block that is hardly larger than they are."""
    return min(WIDEST, max(NARROWEST, triton.next_power_of_2(n)))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    assert x.shape == y.shape, "x and y must have one length"
    assert x.dtype == y.dtype, "x and y must have one dtype"
    if out is None:
        out = torch.empty(x.shape, device=x.device)
    n = x.shape[0]
    if n > 0:
        block = block_for(n)
        warps = 8 if block == WIDEST else 4
        elementwise_add_kernel[(triton.cdiv(n, block),)](x, y, out, n, BLOCK=block, num_warps=warps)
    return out
