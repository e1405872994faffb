# labs/lab1_elementwise_add/elementwise_add.py | corner | total starts from tl.zeros and both terms are added to it: 0.0 + -0.0 + -0.0 is 0.0, but x + y is -0.0. It must start from the first term. Shown by inputs where both elements are -0.0.
"""Elementwise sum, written so that it could be extended to more terms."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def term(ptr, offs, n):
    """The elements `offs` of one term."""
    return tl.load(ptr + offs, mask=offs < n)


@triton.jit
def sum_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    offs = start + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=out_ptr.dtype.element_ty)
    total += term(x_ptr, offs, n)
    total += term(y_ptr, offs, n)
    tl.store(out_ptr + offs, total, mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype."""
    if out is None:
        out = torch.empty_like(x)
    n = x.shape[0]
    programs = triton.cdiv(n, BLOCK)
    if programs > 0:
        sum_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK)
    return out
