# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | elementwise_add passes last = n - 1, the index of the last element, and elementwise_add_kernel masks with offs < last: the last element, out[n - 1], is never written, in every case with n >= 1 (at n = 1 nothing is written). It should be offs <= last.
"""Add two vectors, in blocks of 8 KiB of each operand."""

import torch
import triton
import triton.language as tl

BLOCK_BYTES = 8192


@triton.jit
def elementwise_add_kernel(
    a_ptr,
    b_ptr,
    sum_ptr,
    last,  # index of the last element
    BLOCK: tl.constexpr,
):
    block_id = tl.program_id(axis=0).to(tl.int64)
    offs = block_id * BLOCK + tl.arange(0, BLOCK)
    valid = offs < last
    a = tl.load(a_ptr + offs, mask=valid)
    b = tl.load(b_ptr + offs, mask=valid)
    tl.store(sum_ptr + offs, a + b, mask=valid)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    if x.numel() == 0:
        return out
    block = BLOCK_BYTES // x.element_size()
    last = x.numel() - 1
    grid = (last // block + 1,)
    elementwise_add_kernel[grid](x, y, out, last, BLOCK=block, num_warps=8)
    return out
