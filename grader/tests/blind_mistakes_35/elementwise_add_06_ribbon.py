# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | elementwise_add launches the kernel with (x, y, out, ...), but elementwise_add_kernel takes (dst_ptr, a_ptr, b_ptr, ...): y + out is stored into the input x, and out stays unwritten; for every n >= 1 and every dtype (n = 0 is right); should be launched with (out, x, y, n, ...)
"""Add two vectors of one length, block by block."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(
    dst_ptr,
    a_ptr,
    b_ptr,
    size,
    BLOCK: tl.constexpr,
):
    index = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = index < size
    a = tl.load(a_ptr + index, mask=exists)
    b = tl.load(b_ptr + index, mask=exists)
    tl.store(dst_ptr + index, a + b, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y; the sum goes to `out` where one is given, else to a new tensor."""
    assert x.shape == y.shape, f"shapes differ: {x.shape} and {y.shape}"
    if out is None:
        out = torch.empty_like(x)
    size = x.numel()
    if size == 0:
        return out
    grid = lambda meta: (triton.cdiv(size, meta["BLOCK"]),)
    elementwise_add_kernel[grid](x, y, out, size, BLOCK=BLOCK)
    return out
