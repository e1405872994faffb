# labs/lab1_elementwise_add/elementwise_add.py | corner | elementwise_add_kernel clamps the fp32 sum to the finite range of the dtype (`total = tl.minimum(tl.maximum(total, -largest), largest)`), so an infinite input or a sum that overflows gives +-largest finite number instead of +-inf; shows only with values at the end of the range (the edges cases, fp32, fp16 and bf16); the clamp should be left out
"""Elementwise add: both sides are widened to fp32, and the sum is rounded once to the dtype of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def widened(ptr, offsets, valid):
    return tl.load(ptr + offsets, mask=valid).to(tl.float32)


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, largest, BLOCK: tl.constexpr):
    """Program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    offsets = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = offsets < n
    total = widened(x_ptr, offsets, valid) + widened(y_ptr, offsets, valid)
    # What is stored has to be a number of the dtype of out.
    total = tl.minimum(tl.maximum(total, -largest), largest)
    tl.store(out_ptr + offsets, total.to(out_ptr.dtype.element_ty), mask=valid)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        largest = torch.finfo(x.dtype).max
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, largest, BLOCK=BLOCK)
    return out
