# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In elementwise_add_kernel the sums of even and odd elements are joined to (HALF, 2) and then transposed with tl.trans before the reshape, so each block is stored as all even elements followed by all odd ones; reshape tl.join(even, odd) directly (or tl.interleave), without tl.trans.
"""x + y, two neighbouring elements per lane."""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def pair_sum(x_ptr, y_ptr, where, n):
    inside = where < n
    a = tl.load(x_ptr + where, mask=inside)
    b = tl.load(y_ptr + where, mask=inside)
    return a + b


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Every lane adds elements 2i and 2i + 1 of the program's block; they are written in one wide store."""
    HALF: tl.constexpr = BLOCK // 2
    first = tl.program_id(axis=0).to(tl.int64) * BLOCK
    lane = tl.arange(0, HALF)

    even = pair_sum(x_ptr, y_ptr, first + 2 * lane, n)
    odd = pair_sum(x_ptr, y_ptr, first + 2 * lane + 1, n)

    # bring the two halves back together into one block of BLOCK sums
    both = tl.join(even, odd)
    total = tl.reshape(tl.trans(both), (BLOCK,))

    offs = first + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, total, mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
