# lab1/elementwise_add.py | honest | - | unusual: a two-dimensional grid (fast axis 0, at most 1024 wide) of two-dimensional tiles 8 x 256, offsets and mask from a helper, the programs past the end have an all-false mask
"""Add two vectors, drawn as a sheet of 8 x 256 tiles."""

import torch
import triton
import triton.language as tl
from triton import cdiv

ROWS = 8
COLS = 256
WIDE = 1024


@triton.jit
def where_am_i(ROWS: tl.constexpr, COLS: tl.constexpr):
    number = tl.program_id(axis=1).to(tl.int64) * tl.num_programs(axis=0) + tl.program_id(axis=0)
    r = tl.arange(0, ROWS)
    c = tl.arange(0, COLS)
    return number * (ROWS * COLS) + (r[:, None] * COLS + c[None, :])


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, step, ROWS: tl.constexpr, COLS: tl.constexpr):
    offs = where_am_i(ROWS, COLS)
    live = offs < n
    total = tl.load(y_ptr + offs, mask=live) + tl.load(x_ptr + offs, mask=live)
    tl.store(out_ptr + offs * step, total, mask=live)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = x.new_empty(x.shape)
    n = x.shape[0]
    tiles = cdiv(n, ROWS * COLS)
    if tiles > 0:
        grid = (min(tiles, WIDE), cdiv(tiles, WIDE))
        elementwise_add_kernel[grid](x, y, out, n, out.stride(0), ROWS=ROWS, COLS=COLS, num_warps=8)
    return out
