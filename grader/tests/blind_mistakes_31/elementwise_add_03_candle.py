# labs/lab1_elementwise_add/elementwise_add.py | right | right
"""Add two vectors: whole blocks without a mask, then what is left over with one."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    """A whole block: all of its elements exist."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    y = tl.load(y_ptr + offs)
    tl.store(out_ptr + offs, x + y)


@triton.jit
def remainder_kernel(x_ptr, y_ptr, out_ptr, start, n, BLOCK: tl.constexpr):
    """Elements start to n - 1, fewer than BLOCK; start is a multiple of BLOCK. One program."""
    offs = start + tl.arange(0, BLOCK)
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    whole, rest = divmod(n, BLOCK)
    if whole:
        elementwise_add_kernel[(whole,)](x, y, out, BLOCK=BLOCK)
    if rest:
        remainder_kernel[(1,)](x, y, out, n - rest, n, BLOCK=BLOCK)
    return out
