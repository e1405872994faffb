# labs/lab1_elementwise_add/elementwise_add.py | honest | Right: a bounded number of programs walks backwards over 2-D tiles of the flat vector, int64 offsets, masked, y + x is x + y to the bit.
"""x + y by a fixed number of programs; each walks backwards over 2-D tiles of the flat vector."""

import torch
import triton
import triton.language as tl

PROGRAMS = 1024


@triton.jit
def add_tiles(x_ptr, y_ptr, out_ptr, n, tiles, ROWS: tl.constexpr, COLS: tl.constexpr):
    # A tile is ROWS lines of COLS numbers; line by line it is a contiguous piece of ROWS * COLS elements.
    inner = tl.arange(0, ROWS)[:, None] * COLS + tl.arange(0, COLS)[None, :]
    tile = tiles - 1 - tl.program_id(axis=0)
    while tile >= 0:
        at = tile.to(tl.int64) * (ROWS * COLS) + inner
        live = at < n
        # Addition is commutative to the last bit, so y may come first.
        tl.store(out_ptr + at, tl.load(y_ptr + at, mask=live) + tl.load(x_ptr + at, mask=live), mask=live)
        tile -= tl.num_programs(axis=0)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Sum of two contiguous vectors of one dtype; an empty one launches nothing."""
    out = torch.empty_like(x) if out is None else out
    n = x.size(0)
    tiles = triton.cdiv(n, 8 * 256)
    if tiles:
        add_tiles[(min(tiles, PROGRAMS),)](x, y, out, n, tiles, ROWS=8, COLS=256, num_warps=8)
    return out
