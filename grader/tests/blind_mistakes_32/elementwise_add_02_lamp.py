# labs/lab1_elementwise_add/elementwise_add.py | right | right (the block is the largest power of two that fits into n, and the last program is moved back so that it ends at n: no mask is needed, and the elements that two programs own get the same bits)
"""Add two vectors without a mask: every block is whole, and the last one ends where the vectors end."""

import torch
import triton
import triton.language as tl

WIDEST = 2048


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    # n >= BLOCK holds: the host sees to that.
    wanted = tl.program_id(axis=0).to(tl.int64) * BLOCK
    start = tl.minimum(wanted, n - BLOCK)
    offs = start + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs) + tl.load(y_ptr + offs))


def _widest_block(n: int) -> int:
    """The largest power of two that is neither above n nor above WIDEST."""
    return min(WIDEST, 1 << (n.bit_length() - 1))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    block = _widest_block(n)
    elementwise_add_kernel[(triton.cdiv(n, block),)](x, y, out, n, BLOCK=block)
    return out
