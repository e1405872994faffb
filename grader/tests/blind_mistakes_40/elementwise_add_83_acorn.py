# labs/lab1_elementwise_add/elementwise_add.py | right | No masks at all: the block is the largest power of two that is at most n (and 4096), and the last program is moved back to n - BLOCK with tl.minimum, so it may overlap with its neighbour; both store the same bits, which the README permits. Every access is in bounds, offsets are int64, n = 0 launches nothing.
"""Add two vectors without any mask: the last block is moved back until it ends where the vector ends."""

import torch
import triton
import triton.language as tl

WIDEST = 4096


@triton.jit
def maskless_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous, with n >= BLOCK
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    last,  # n - BLOCK, where the last block begins
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid adds BLOCK elements from pid * BLOCK on, or else the last BLOCK ones.

    The last two programs may have some elements in common. Both store the same sums there, and nobody reads
    them.
    """
    begin = tl.minimum(tl.program_id(axis=0).to(tl.int64) * BLOCK, last)
    offs = begin + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs) + tl.load(y_ptr + offs))


def widest_block(n: int) -> int:
    """The largest power of two that is neither above n nor above WIDEST; n is at least 1."""
    block = 1
    while 2 * block <= min(n, WIDEST):
        block *= 2
    return block


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    if n == 0:
        return out
    block = widest_block(n)
    warps = 8 if block == WIDEST else 4
    maskless_add_kernel[(triton.cdiv(n, block),)](x, y, out, n - block, BLOCK=block, num_warps=warps)
    return out
