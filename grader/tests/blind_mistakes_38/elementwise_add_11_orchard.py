# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | elementwise_add_kernel counts its lanes from 1, tl.arange(1, BLOCK + 1), so every block is shifted by one and element 0 belongs to no program and stays unwritten, in every case with n > 0 (all other elements are right; at n = 1 nothing is written); should be tl.arange(0, BLOCK)
"""Add two vectors, a block of neighbours per program."""

import torch
import triton
import triton.language as tl

WARPS = 8
PER_THREAD = 8
BLOCK = WARPS * 32 * PER_THREAD


@triton.jit
def owned(BLOCK: tl.constexpr):
    """The elements of this program."""
    before = tl.program_id(axis=0).to(tl.int64) * BLOCK
    return before + tl.arange(1, BLOCK + 1)


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    element = owned(BLOCK)
    present = element < n
    augend = tl.load(x_ptr + element, mask=present)
    addend = tl.load(y_ptr + element, mask=present)
    tl.store(out_ptr + element, augend + addend, mask=present)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype."""
    if out is None:
        out = torch.empty_like(x)
    if x.numel() > 0:
        grid = (triton.cdiv(x.numel(), BLOCK), 1, 1)
        elementwise_add_kernel[grid](x, y, out, x.numel(), BLOCK=BLOCK, num_warps=WARPS)
    return out
