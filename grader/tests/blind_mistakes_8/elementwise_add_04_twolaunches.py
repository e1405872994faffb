# labs/lab1_elementwise_add/elementwise_add.py | corner | `if n > BLOCK` skips the launch of whole blocks for n == BLOCK, and the second launch has nothing left there, so nothing is written; must be `n >= BLOCK`. Shows only for n == 1024.
"""x + y: whole blocks by one launch without masks, the rest by a second launch."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def whole_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    """A complete block: no mask at all."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs) + tl.load(y_ptr + offs))


@triton.jit
def rest_kernel(x_ptr, y_ptr, out_ptr, first, n, BLOCK: tl.constexpr):
    """What is left from element `first` on, fewer than BLOCK elements."""
    offs = tl.cast(first, tl.int64) + tl.arange(0, BLOCK)
    here = offs < n
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=here) + tl.load(y_ptr + offs, mask=here), mask=here)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    whole = n // BLOCK
    first = whole * BLOCK
    if n > BLOCK:
        whole_kernel[(whole,)](x, y, out, BLOCK=BLOCK)
    if first < n:
        rest_kernel[(1,)](x, y, out, first, n, BLOCK=BLOCK)
    return out
