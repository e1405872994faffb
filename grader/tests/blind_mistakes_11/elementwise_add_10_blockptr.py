# labs/lab1_elementwise_add/elementwise_add.py | right | block pointers with a boundary check instead of masks; the base pointer is moved by an int64 start, so the shape of the block pointer is what is left of the vector and its offset is 0. Without the check where n is a multiple of the block (constexpr EVEN).
"""Add two vectors through block pointers."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def block_at(ptr, start, left, BLOCK: tl.constexpr):
    """The block of the vector at ptr that begins with element start; left elements exist from there on."""
    return tl.make_block_ptr(ptr + start, shape=(left,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,))


@triton.jit
def add_blocks(x_ptr, y_ptr, out_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK
    left = n - start
    x_block = block_at(x_ptr, start, left, BLOCK)
    y_block = block_at(y_ptr, start, left, BLOCK)
    out_block = block_at(out_ptr, start, left, BLOCK)
    if EVEN:
        tl.store(out_block, tl.load(x_block) + tl.load(y_block))
    else:
        x = tl.load(x_block, boundary_check=(0,))
        y = tl.load(y_block, boundary_check=(0,))
        tl.store(out_block, x + y, boundary_check=(0,))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous vectors; n may be 0."""
    if out is None:
        out = x.new_empty(x.shape)
    n = x.shape[0]
    if n != 0:
        add_blocks[(triton.cdiv(n, BLOCK),)](x, y, out, n, EVEN=n % BLOCK == 0, BLOCK=BLOCK)
    return out
