# labs/lab1_elementwise_add/elementwise_add.py | right | No masks: the block is the largest power of two up to min(n, 2048), and the last program begins at n - BLOCK, so that it may overlap the one before it; both store the same bits. Block width and warps depend on n; the kernel gets `last = n - block` and not n.
"""Add two vectors without a mask: the last block is moved back until it ends where the vector ends."""

import torch
import triton
import triton.language as tl

WIDEST = 2048
NARROWEST_WARPS = 1


@triton.jit
def _add_at(x_ptr, y_ptr, out_ptr, first, BLOCK: tl.constexpr):
    """BLOCK elements from `first` on; all of them exist."""
    at = first + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at) + tl.load(y_ptr + at))


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    last,  # n - BLOCK: where the last block may begin at most; never negative
    BLOCK: tl.constexpr,
):
    """Program pid begins at pid * BLOCK, but for the last one, which begins at `last`.

    The last two programs may share elements. Both store the same sums there.
    """
    first = tl.program_id(axis=0).to(tl.int64) * BLOCK
    if first <= last:
        _add_at(x_ptr, y_ptr, out_ptr, first, BLOCK)
    else:
        _add_at(x_ptr, y_ptr, out_ptr, last, BLOCK)


def _block_of(n: int) -> int:
    """The largest power of two that is not above n, nor above WIDEST."""
    block = triton.next_power_of_2(n)
    if block > n:
        block = block // 2
    return min(block, WIDEST)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    block = _block_of(n)
    warps = max(NARROWEST_WARPS, block // 512)
    elementwise_add_kernel[(triton.cdiv(n, block),)](x, y, out, n - block, BLOCK=block, num_warps=warps)
    return out
