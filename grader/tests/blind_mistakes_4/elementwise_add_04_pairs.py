# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | elementwise_add_kernel, the block to be stored: the sums of the even and of the odd elements are put one behind the other (join, permute, reshape) instead of alternating; it must be tl.interleave(left, right), or a reshape without the permute
"""Add vectors; even and odd elements are fetched apart and put together again for the store."""

import torch
import triton
import triton.language as tl

HALF = 512


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, HALF: tl.constexpr):
    pid = tl.program_id(axis=0).to(tl.int64)
    base = pid * (2 * HALF)
    even = base + 2 * tl.arange(0, HALF)
    odd = even + 1
    sum_even = tl.load(x_ptr + even, mask=even < n, other=0.0) + tl.load(y_ptr + even, mask=even < n, other=0.0)
    sum_odd = tl.load(x_ptr + odd, mask=odd < n, other=0.0) + tl.load(y_ptr + odd, mask=odd < n, other=0.0)
    both = tl.reshape(tl.permute(tl.join(sum_even, sum_odd), (1, 0)), (2 * HALF,))
    where = base + tl.arange(0, 2 * HALF)
    tl.store(out_ptr + where, both, mask=where < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = out if out is not None else torch.empty_like(x)
    n = x.numel()
    if n:
        elementwise_add_kernel[(triton.cdiv(n, 2 * HALF),)](x, y, out, n, HALF=HALF)
    return out
