# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | the rows of the two-dimensional tile lie ROWS apart (`r * ROWS + c` in tile_offsets); must be COLS apart, r * COLS + c. A tile of 8 x 256 then covers its first 7 * 8 + 256 = 312 elements instead of 2048, and the rest of each tile stays unwritten: shows for every n > 312.
"""Addition of two vectors in tiles of ROWS x COLS: neighbouring threads sit next to each other in a row."""

import torch
import triton
import triton.language as tl

ROWS = 8
COLS = 256


@triton.jit
def tile_offsets(ROWS: tl.constexpr, COLS: tl.constexpr):
    """Offsets inside one tile, shape (ROWS, COLS), counted row by row."""
    r = tl.arange(0, ROWS)[:, None]
    c = tl.arange(0, COLS)[None, :]
    return r * ROWS + c


@triton.jit
def add_tiles(x_ptr, y_ptr, out_ptr, n, ROWS: tl.constexpr, COLS: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * (ROWS * COLS)
    offs = first + tile_offsets(ROWS, COLS)
    inside = offs < n
    total = tl.load(x_ptr + offs, mask=inside) + tl.load(y_ptr + offs, mask=inside)
    tl.store(out_ptr + offs, total, mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """The sum of two vectors, in `out` or in a new vector."""
    result = torch.empty_like(x) if out is None else out
    n = x.shape[0]
    if n == 0:
        return result
    grid = lambda meta: (triton.cdiv(n, meta["ROWS"] * meta["COLS"]),)
    add_tiles[grid](x, y, result, n, ROWS=ROWS, COLS=COLS)
    return result
