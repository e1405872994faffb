# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | The kernel takes the destination first, add_into_kernel(dst, a, b), but the launch passes (x, y, dst): it stores y + dst into x, so the input is changed and the result unwritten. It must pass (dst, x, y).
"""Sum of two vectors."""

import torch
import triton
import triton.language as tl

BLOCK = 512


@triton.jit
def span(BLOCK: tl.constexpr):
    """The numbers of the elements of this program."""
    return tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def add_into_kernel(dst_ptr, a_ptr, b_ptr, count, BLOCK: tl.constexpr):
    index = span(BLOCK)
    valid = index < count
    a = tl.load(a_ptr + index, mask=valid, other=0.0)
    b = tl.load(b_ptr + index, mask=valid, other=0.0)
    tl.store(dst_ptr + index, a + b, mask=valid)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y; the sum goes to `out` where one is given."""
    dst = torch.empty_like(x) if out is None else out
    count = x.numel()
    if count != 0:
        blocks = triton.cdiv(count, BLOCK)
        add_into_kernel[(blocks,)](x, y, dst, count, BLOCK=BLOCK)
    return dst
