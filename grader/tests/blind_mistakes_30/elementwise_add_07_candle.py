# labs/lab1_elementwise_add/elementwise_add.py | right | right
"""Add two vectors: whole blocks need no mask, and the rest is the work of one more program."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    """The whole blocks."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs) + tl.load(y_ptr + offs))


@triton.jit
def rest_kernel(x_ptr, y_ptr, out_ptr, first, rest, BLOCK: tl.constexpr):
    """The elements first to first + rest - 1, fewer than BLOCK."""
    lanes = tl.arange(0, BLOCK)
    keep = lanes < rest
    x = tl.load(x_ptr + first + lanes, mask=keep)
    y = tl.load(y_ptr + first + lanes, mask=keep)
    tl.store(out_ptr + first + lanes, x + y, mask=keep)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    whole, rest = divmod(x.numel(), BLOCK)
    if whole:
        elementwise_add_kernel[(whole,)](x, y, out, BLOCK=BLOCK)
    if rest:
        rest_kernel[(1,)](x, y, out, whole * BLOCK, rest, BLOCK=BLOCK)
    return out
