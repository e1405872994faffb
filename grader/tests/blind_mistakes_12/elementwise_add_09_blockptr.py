# labs/lab1_elementwise_add/elementwise_add.py | right | unusual: block pointers, whose base is moved by an int64 start and whose shape is what is left of the vector (n - start), offsets are 0; no mask appears, boundary_check does its work
"""Add two vectors through block pointers."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def window(ptr, start, n, BLOCK: tl.constexpr):
    """A block pointer to the BLOCK elements from start on, of a vector that ends at n.

    Offsets of block pointers are 32 bits wide, so the base moves instead: start is int64.
    """
    behind = start - n  # negative: so many elements are left
    return tl.make_block_ptr(
        base=ptr + start,
        shape=(-behind,),
        strides=(1,),
        offsets=(0,),
        block_shape=(BLOCK,),
        order=(0,),
    )


@triton.jit
def add_windows_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out = x + y, one window for each program."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    x = tl.load(window(x_ptr, start, n, BLOCK), boundary_check=(0,))
    y = tl.load(window(y_ptr, start, n, BLOCK), boundary_check=(0,))
    tl.store(window(out_ptr, start, n, BLOCK), x + y, boundary_check=(0,))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.size(0)
    if n > 0:
        add_windows_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
