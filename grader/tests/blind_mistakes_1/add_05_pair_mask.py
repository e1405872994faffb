# lab1/elementwise_add.py | corner | kernel: the mask of a row of two neighbours tests the second one (2 * pair + 1 < n) for both columns, so for odd n the last element is neither read nor stored | "The sizes include 0, 1, and many that are no multiple of a block"; odd n: out[n - 1] stays unwritten
"""Elementwise add: a block of pairs, shape (PAIRS, 2)."""

import torch
import triton
import triton.language as tl

PAIRS = 512


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, PAIRS: tl.constexpr):
    pair = tl.program_id(axis=0).to(tl.int64) * PAIRS + tl.arange(0, PAIRS)
    side = tl.arange(0, 2)
    offs = 2 * pair[:, None] + side[None, :]
    inside = (2 * pair + 1 < n)[:, None] & (side < 2)[None, :]
    x = tl.load(x_ptr + offs, mask=inside)
    y = tl.load(y_ptr + offs, mask=inside)
    tl.store(out_ptr + offs, x + y, mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    (n,) = x.shape
    if n == 0:
        return out
    grid = (triton.cdiv(n, 2 * PAIRS),)
    elementwise_add_kernel[grid](x, y, out, n, PAIRS)
    return out
