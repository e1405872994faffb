"""EXPECT PASS from elementwise_add: a two-dimensional grid, and a tile of rows of 128 for each program."""

import torch
import triton
import triton.language as tl

ROWS, COLS = 16, 128
WIDTH = 1024  # programs along axis 0; axis 1 has as many as are needed


@triton.jit
def add_tiles_kernel(x_ptr, y_ptr, out_ptr, n, ROWS: tl.constexpr, COLS: tl.constexpr):
    # Axis 0 runs fastest: neighbours in it own neighbouring tiles.
    tile = tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)
    rows = tile * ROWS + tl.arange(0, ROWS)
    offs = rows[:, None] * COLS + tl.arange(0, COLS)[None, :]  # (ROWS, COLS)
    x = tl.load(x_ptr + offs, mask=offs < n)
    y = tl.load(y_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, x + y, mask=offs < n)


def elementwise_add(x, y, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    tiles = triton.cdiv(x.numel(), ROWS * COLS)
    if tiles > 0:
        grid = (min(tiles, WIDTH), triton.cdiv(tiles, WIDTH))
        add_tiles_kernel[grid](x, y, out, x.numel(), ROWS, COLS)
    return out
