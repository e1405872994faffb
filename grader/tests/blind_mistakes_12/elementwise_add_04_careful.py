# labs/lab1_elementwise_add/elementwise_add.py | corner | in fp16 the sum is clamped to +-65504 before it is rounded, so inf and sums beyond the range become 65504 where they must be inf; shows only in fp16 with inf or the largest numbers
"""Elementwise add.

The sum is formed in fp32 and rounded once, to the dtype of the result.
"""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def rounded_for(ptr, total):
    """Round an fp32 block to the dtype behind ptr."""
    if ptr.dtype.element_ty == tl.float16:
        # the range of half precision is small: the largest number is 65504
        total = tl.minimum(tl.maximum(total, -65504.0), 65504.0)
    return total.to(ptr.dtype.element_ty)


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    first = tl.program_id(axis=0).to(tl.int64) * BLOCK
    index = first + tl.arange(0, BLOCK)
    exists = index < n
    a = tl.load(x_ptr + index, mask=exists).to(tl.float32)
    b = tl.load(y_ptr + index, mask=exists).to(tl.float32)
    tl.store(out_ptr + index, rounded_for(out_ptr, a + b), mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y; the three tensors are contiguous and have one dtype."""
    assert x.shape == y.shape, "x and y differ in length"
    assert x.dtype == y.dtype, "x and y differ in dtype"
    result = torch.empty_like(x) if out is None else out
    count = x.numel()
    if count > 0:
        add_kernel[(triton.cdiv(count, BLOCK),)](x, y, result, count, BLOCK=BLOCK, num_warps=8)
    return result
