# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | elementwise_add never passes out to the kernel: _sum(x, y) always writes into a tensor of its own, and out = _sum(x, y) only binds the name out to that tensor, so an out that is given stays unwritten and is not returned; right only in calls without out; should pass out as the destination of the launch and return it
"""Elementwise sum of two vectors."""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, sum_ptr, n, BLOCK: tl.constexpr):
    """Program p adds elements p * BLOCK to (p + 1) * BLOCK - 1, as far as they exist."""
    p = tl.program_id(axis=0).to(tl.int64)
    i = p * BLOCK + tl.arange(0, BLOCK)
    ok = i < n
    tl.store(sum_ptr + i, tl.load(x_ptr + i, mask=ok) + tl.load(y_ptr + i, mask=ok), mask=ok)


def _sum(x, y):
    result = torch.empty_like(x)
    n = x.size(0)
    if n:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, result, n, BLOCK=BLOCK, num_warps=8)
    return result


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype; n may be 0."""
    if out is None:
        return _sum(x, y)
    out = _sum(x, y)
    return out
