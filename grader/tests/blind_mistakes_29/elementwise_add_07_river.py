# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | the kernel takes its pointers in the order (dst, lhs, rhs), but elementwise_add launches it with (x, y, out): y + out is stored into x, which is an input, and out stays unwritten; shows for every n > 0; the launch should pass (out, x, y)
"""Add two vectors: one program, one block of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(dst, lhs, rhs, n, BLOCK: tl.constexpr):
    """dst = lhs + rhs, all of length n."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    lane = start + tl.arange(0, BLOCK)
    exists = lane < n

    value = tl.load(lhs + lane, mask=exists)
    value += tl.load(rhs + lane, mask=exists)
    tl.store(dst + lane, value, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype."""
    if out is None:
        out = torch.empty_like(x)
    n = x.size(0)
    programs = (n + BLOCK - 1) // BLOCK
    if programs == 0:
        return out
    elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK)
    return out
