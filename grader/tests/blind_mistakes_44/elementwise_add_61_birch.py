# labs/lab1_elementwise_add/elementwise_add.py | right | Nothing is wrong. Unusual: no mask for n >= BLOCK; the last program steps back to start at n - BLOCK, so it overlaps the one before and both store the same bits; `EVEN` keeps the loads wide where n is a multiple of BLOCK, and shorter vectors take a second kernel with a mask.
"""Add two vectors without a mask: the last block steps back until it ends with the vectors."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def short_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """One program for a vector shorter than a block."""
    offs = tl.arange(0, BLOCK)
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


@triton.jit
def long_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous; n >= BLOCK
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    last,  # where a block starts that ends with the vectors: n - BLOCK
    EVEN: tl.constexpr,  # n is a multiple of BLOCK
    BLOCK: tl.constexpr,
):
    """Every lane exists. Where the last two blocks overlap, both store the same sums."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    if not EVEN:
        start = tl.minimum(start, last)
    offs = start + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    y = tl.load(y_ptr + offs)
    tl.store(out_ptr + offs, x + y)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n >= BLOCK:
        grid = (triton.cdiv(n, BLOCK),)
        long_kernel[grid](x, y, out, n - BLOCK, EVEN=n % BLOCK == 0, BLOCK=BLOCK)
    elif n > 0:
        short_kernel[(1,)](x, y, out, n, BLOCK=BLOCK)
    return out
