# labs/lab1_elementwise_add/elementwise_add.py | corner | elementwise_add, launch of tail_kernel: one program of TAIL = 256 elements, but up to BLOCK - 1 = 1023 elements are left | "enough programs to cover n elements"; n % 1024 above 256: the elements from 256 past the last full block on stay unwritten
"""Add two vectors: full blocks without masks, then the rest with one."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
TAIL = 256


@triton.jit
def full_blocks_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    """All lanes exist: no mask, wide loads."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs) + tl.load(y_ptr + offs))


@triton.jit
def tail_kernel(x_ptr, y_ptr, out_ptr, begin, n, TAIL: tl.constexpr):
    """The elements from begin to n - 1."""
    offs = tl.cast(begin, tl.int64) + tl.arange(0, TAIL)
    here = offs < n
    x = tl.load(x_ptr + offs, mask=here)
    y = tl.load(y_ptr + offs, mask=here)
    tl.store(out_ptr + offs, x + y, mask=here)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    full = n // BLOCK
    rest = n - full * BLOCK
    if full > 0:
        full_blocks_kernel[(full,)](x, y, out, BLOCK=BLOCK)
    if rest > 0:
        tail_kernel[(1,)](x, y, out, full * BLOCK, n, TAIL=TAIL)
    return out
