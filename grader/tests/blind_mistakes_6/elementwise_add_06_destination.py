# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) valid is where <= count, which lets one element past the end be read and written where n is no multiple of a block; it must be <. (2) The grid counts blocks of BLOCK = 512 elements, but the launch passes BLOCK=256, so the second half of the vector (n above 256) has no program; it must pass the BLOCK that the grid was computed with.
"""Add two vectors, destination first as in memcpy."""

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
    where = span(BLOCK)
    valid = where <= count
    a = tl.load(a_ptr + where, mask=valid, other=0.0)
    b = tl.load(b_ptr + where, mask=valid, other=0.0)
    tl.store(dst_ptr + where, a + b, mask=valid)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y; the sum goes to `out` where one is given."""
    dst = torch.empty_like(x) if out is None else out
    count = x.numel()
    if count != 0:
        blocks = triton.cdiv(count, BLOCK)
        add_into_kernel[(blocks,)](dst, x, y, count, BLOCK=256)
    return dst
