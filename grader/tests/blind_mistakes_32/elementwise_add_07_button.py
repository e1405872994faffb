# labs/lab1_elementwise_add/elementwise_add.py | contract | The numbers are right, but elementwise_add_kernel reads past the end of x and y: the loads of the next tile, x_next and y_next at offs + BLOCK, use the mask of the current tile (offs < n). The extra lanes are never stored. Shows as an out-of-bounds read (up to one block past the end) for every n >= 1 that is no multiple of BLOCK * TILES = 4096; "a masked lane neither reads nor writes" lanes past n. It should be mask=offs + BLOCK < n.
"""Add two vectors: a program walks over four tiles and loads one tile ahead."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
TILES = 4


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, TILES: tl.constexpr):
    offs = tl.program_id(axis=0).to(tl.int64) * (BLOCK * TILES) + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)

    for t in tl.static_range(TILES):
        if t + 1 < TILES:
            x_next = tl.load(x_ptr + offs + BLOCK, mask=mask)
            y_next = tl.load(y_ptr + offs + BLOCK, mask=mask)
        tl.store(out_ptr + offs, x + y, mask=mask)
        if t + 1 < TILES:
            x = x_next
            y = y_next
            offs += BLOCK
            mask = offs < n


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        programs = triton.cdiv(n, BLOCK * TILES)
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, TILES=TILES)
    return out
