# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | y is loaded flat, reshaped to (COLS, ROWS) and transposed, so element (r, c) of the tile gets y[c * ROWS + r] instead of y[r * COLS + c]; it must be tl.reshape(y, (ROWS, COLS)); shows at every n >= 2 (random values)
"""Elementwise add on 2D tiles: each program takes ROWS x COLS consecutive elements."""
import torch
import triton
import triton.language as tl

ROWS, COLS = 8, 128


@triton.jit
def tile_add(x_ptr, y_ptr, out_ptr, n, ROWS: tl.constexpr, COLS: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * (ROWS * COLS)

    # x and out are addressed as a tile, row after row
    r = tl.arange(0, ROWS)[:, None]
    c = tl.arange(0, COLS)[None, :]
    where = first + r * COLS + c
    inside = where < n
    x = tl.load(x_ptr + where, mask=inside)

    # y comes in one piece (this gives the widest loads) and is brought into the shape of the tile
    flat = first + tl.arange(0, ROWS * COLS)
    y = tl.load(y_ptr + flat, mask=flat < n, other=0.0)
    y = tl.trans(tl.reshape(y, (COLS, ROWS)))

    tl.store(out_ptr + where, x + y, mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.shape[0]
    if n == 0:
        return out  # no programs, no launch
    tiles = triton.cdiv(n, ROWS * COLS)
    tile_add[(tiles,)](x, y, out, n, ROWS=ROWS, COLS=COLS, num_warps=4)
    return out
