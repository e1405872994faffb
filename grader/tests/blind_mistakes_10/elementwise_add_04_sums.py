# labs/lab1_elementwise_add/elementwise_add.py | corner | the sum starts from a block of +0.0 (`total = tl.zeros(...)`), to which x and y are added; must be x + y alone. 0.0 + -0.0 + -0.0 is 0.0. Shows only in the sign of the zero where x and y are both -0.0.
"""Add two vectors: the terms are summed in fp32, and rounded once in the store."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def accumulate(total, ptr, offs, mask):
    """total plus the elements of one operand."""
    return total + tl.load(ptr + offs, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def sum_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    block = tl.program_id(axis=0).to(tl.int64)
    offs = block * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    total = accumulate(total, x_ptr, offs, mask)
    total = accumulate(total, y_ptr, offs, mask)
    tl.store(out_ptr + offs, total.to(out_ptr.dtype.element_ty), mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y, rounded once; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.shape[0]
    if n > 0:
        sum_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
