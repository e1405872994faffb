# labs/lab1_elementwise_add/elementwise_add.py | corner | In `sum_of_terms_kernel`, `total = tl.zeros((STRIP,), dtype=out_ptr.dtype.element_ty)` starts the total at +0.0, so -0.0 + -0.0 gives +0.0; the total should start from the loaded first term (or from -0.0). Shows only where both inputs are -0.0 (the cases with values "edges", all dtypes).
"""Add two vectors: a running total over the terms, several strips for each program."""

import torch
import triton
import triton.language as tl

STRIP = 1024
STRIPS = 2


@triton.jit
def _and_then(total, ptr, offs, exists):
    """The total so far, and one more term."""
    return total + tl.load(ptr + offs, mask=exists, other=0.0)


@triton.jit
def sum_of_terms_kernel(
    first_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    second_ptr,  # (n,) like the first
    out_ptr,  # (n,) like the first
    n,
    STRIP: tl.constexpr,
    STRIPS: tl.constexpr,
):
    """out[i] = first[i] + second[i]; a program owns STRIPS neighbouring strips of STRIP elements."""
    start = tl.program_id(axis=0).to(tl.int64) * (STRIP * STRIPS)
    lanes = tl.arange(0, STRIP)
    for strip in tl.static_range(STRIPS):
        offs = start + strip * STRIP + lanes
        exists = offs < n
        # In the dtype of the result: no digit is lost or invented on the way.
        total = tl.zeros((STRIP,), dtype=out_ptr.dtype.element_ty)
        total = _and_then(total, first_ptr, offs, exists)
        total = _and_then(total, second_ptr, offs, exists)
        tl.store(out_ptr + offs, total, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    programs = triton.cdiv(n, STRIP * STRIPS)
    if programs:
        sum_of_terms_kernel[(programs,)](x, y, out, n, STRIP=STRIP, STRIPS=STRIPS)
    return out
