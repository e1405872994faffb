# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) `half = n // 2` must be rounded up (cdiv(n, 2), the upper half then masked with n): for odd n the last element is unwritten. (2) `total = tl.zeros(...)` and then `+=` twice: 0.0 + -0.0 + -0.0 is 0.0, it must be x + y alone; shows where both addends are -0.0, in every dtype.
"""Each program adds two blocks, one of the lower and one of the upper half: more loads are in flight at a time."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def block_sum(x_ptr, y_ptr, offs, mask, BLOCK: tl.constexpr):
    """The sum of both vectors at offs."""
    total = tl.zeros((BLOCK,), dtype=x_ptr.dtype.element_ty)
    total += tl.load(x_ptr + offs, mask=mask)
    total += tl.load(y_ptr + offs, mask=mask)
    return total


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, half, BLOCK: tl.constexpr):
    low = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    high = low + half
    mask = low < half
    first = block_sum(x_ptr, y_ptr, low, mask, BLOCK)
    second = block_sum(x_ptr, y_ptr, high, mask, BLOCK)
    tl.store(out_ptr + low, first, mask=mask)
    tl.store(out_ptr + high, second, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = x.new_empty(x.shape) if out is None else out
    n = x.numel()
    half = n // 2
    if half:
        elementwise_add_kernel[(triton.cdiv(half, BLOCK),)](x, y, out, half, BLOCK=BLOCK)
    return out
