# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | the helper add_block only binds its own name `total` to the sum (`total += tl.load(...)`) and returns nothing, and elementwise_add_kernel ignores its result, so the block of the caller stays as it was and out = x; wrong for every n >= 1 and dtype; should return total in add_block, and be called as total = add_block(total, ...)
"""Add two vectors: a block of x, to which a block of y is added."""

import torch
import triton
import triton.language as tl

BLOCK_SIZE = 1024


@triton.jit
def add_block(total, ptr, offs, mask):
    """Add one more block of numbers to total."""
    total += tl.load(ptr + offs, mask=mask)


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    block_start = pid.to(tl.int64) * BLOCK_SIZE
    offs = block_start + tl.arange(0, BLOCK_SIZE)
    mask = offs < n_elements

    total = tl.load(x_ptr + offs, mask=mask)
    add_block(total, y_ptr, offs, mask)
    tl.store(out_ptr + offs, total, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_elements = out.numel()
    if n_elements != 0:
        grid = (triton.cdiv(n_elements, BLOCK_SIZE),)
        elementwise_add_kernel[grid](x, y, out, n_elements, BLOCK_SIZE=BLOCK_SIZE)
    return out
