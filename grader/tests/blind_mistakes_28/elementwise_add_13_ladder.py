# labs/lab1_elementwise_add/elementwise_add.py | right | right: pointers are moved to the start of the block, full blocks go without a mask, and the mask of the last block counts the elements that are left
"""Add two vectors: full blocks go the fast way, the last one with care."""

import torch
import triton
import triton.language as tl

BLOCK = 4096
WARPS = 8


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Moves all three pointers to this program's block, then counts from 0."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    left = n - start
    lane = tl.arange(0, BLOCK)
    x_block = x_ptr + start + lane
    y_block = y_ptr + start + lane
    out_block = out_ptr + start + lane
    if left >= BLOCK:
        tl.store(out_block, tl.load(x_block) + tl.load(y_block))
    else:
        some = lane < left
        tl.store(out_block, tl.load(x_block, mask=some) + tl.load(y_block, mask=some), mask=some)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    full, rest = divmod(n, BLOCK)
    programs = full + (1 if rest else 0)
    if programs:
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, num_warps=WARPS)
    return out
