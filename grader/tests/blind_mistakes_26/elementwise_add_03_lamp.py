# labs/lab1_elementwise_add/elementwise_add.py | error | In tile_of, `r` is tl.arange(0, ROWS) without [:, None], and is combined with the columns of shape (1, COLS): shapes (8,) and (1, 256) do not broadcast, so the kernel does not compile (incompatible shapes 8 and 256, in the interpreter as well) for every n > 0. It should be tl.arange(0, ROWS)[:, None].
"""Elementwise add on tiles: each program takes ROWS short rows of COLS neighbours."""

import torch
import triton
import triton.language as tl

ROWS = 8
COLS = 256


@triton.jit
def tile_of(ROWS: tl.constexpr, COLS: tl.constexpr):
    """Positions within a tile, counted row by row."""
    r = tl.arange(0, ROWS)
    c = tl.arange(0, COLS)[None, :]
    return r * COLS + c


@triton.jit
def add_tile_kernel(x_ptr, y_ptr, out_ptr, n, ROWS: tl.constexpr, COLS: tl.constexpr):
    tile = tl.program_id(axis=0).to(tl.int64)
    where = tile * (ROWS * COLS) + tile_of(ROWS, COLS)
    keep = where < n
    total = tl.load(x_ptr + where, mask=keep) + tl.load(y_ptr + where, mask=keep)
    tl.store(out_ptr + where, total, mask=keep)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of the same dtype; nothing is launched for n = 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.shape[0]
    tiles = triton.cdiv(n, ROWS * COLS)
    if tiles:
        add_tile_kernel[(tiles,)](x, y, out, n, ROWS=ROWS, COLS=COLS, num_warps=8)
    return out
