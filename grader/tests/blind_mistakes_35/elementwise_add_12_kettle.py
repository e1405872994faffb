# labs/lab1_elementwise_add/elementwise_add.py | error | the helper programs_for returns `(triton.cdiv(n, BLOCK * PARTS))`, which is a number and no tuple, because the comma is missing, and it serves as the grid; every launch (n >= 1) raises TypeError: object of type 'int' has no len(); n = 0 launches nothing and is right; should be (triton.cdiv(n, BLOCK * PARTS),)
"""Add two vectors: a program adds PARTS blocks, one after another."""

import torch
import triton
import triton.language as tl

BLOCK = 512
PARTS = 4


def programs_for(n: int):
    return (triton.cdiv(n, BLOCK * PARTS))


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    base = tl.program_id(0).to(tl.int64) * (BLOCK * PARTS)
    for part in tl.static_range(PARTS):
        offs = base + part * BLOCK + tl.arange(0, BLOCK)
        keep = offs < n
        left = tl.load(x_ptr + offs, mask=keep)
        right = tl.load(y_ptr + offs, mask=keep)
        tl.store(out_ptr + offs, left + right, mask=keep)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y; nothing is launched for empty vectors."""
    if out is None:
        out = torch.empty_like(x)
    n = x.size(0)
    if n > 0:
        grid = programs_for(n)
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK, PARTS=PARTS)
    return out
