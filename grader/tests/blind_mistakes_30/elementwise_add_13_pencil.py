# labs/lab1_elementwise_add/elementwise_add.py | right | right
"""Add two vectors; the block has 4096 bytes in each dtype."""

import torch
import triton
import triton.language as tl

BYTES = 4096


@triton.jit
def owned(n, BLOCK: tl.constexpr):
    """Offsets of the calling program, and whether they exist."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    return offs, offs < n


@triton.jit
def fetch(ptr, offs, exists):
    return tl.load(ptr + offs, mask=exists, other=0.0).to(tl.float32)


@triton.jit
def elementwise_add_kernel(out_ptr, x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs, exists = owned(n, BLOCK)
    total = fetch(x_ptr, offs, exists) + fetch(y_ptr, offs, exists)
    tl.store(out_ptr + offs, total.to(out_ptr.dtype.element_ty), mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y, added in fp32 and rounded once to the dtype of the result."""
    if out is None:
        out = torch.empty_like(x)
    n, block = x.numel(), BYTES // x.element_size()
    if n > 0:
        grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
        elementwise_add_kernel[grid](out, x, y, n, BLOCK=block, num_warps=4)
    return out
