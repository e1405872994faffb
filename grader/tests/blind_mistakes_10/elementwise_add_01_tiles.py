# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | the vector is seen as a tile of ROWS lines of COLS elements, but tile_offsets multiplies the line by ROWS (8): `rows * ROWS + cols`; must be `rows * COLS + cols`. The 8 lines overlap, so only the first 7 * 8 + 128 = 184 of each 1024 elements are written. Shows wherever n > 184.
"""Add two vectors: each program takes a small two-dimensional tile of the (one-dimensional) data."""

import torch
import triton
import triton.language as tl

ROWS = 8
COLS = 128


@triton.jit
def tile_offsets(ROWS: tl.constexpr, COLS: tl.constexpr):
    """Offsets of a tile of ROWS lines with COLS elements, in the order of memory."""
    base = tl.program_id(axis=0).to(tl.int64) * (ROWS * COLS)
    rows = tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, COLS)[None, :]
    return base + rows * ROWS + cols


@triton.jit
def add_tile_kernel(x_ptr, y_ptr, out_ptr, n, ROWS: tl.constexpr, COLS: tl.constexpr):
    """out[i] = x[i] + y[i] for the ROWS * COLS elements of this program."""
    offs = tile_offsets(ROWS, COLS)
    exists = offs < n
    a = tl.load(x_ptr + offs, mask=exists)
    b = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, a + b, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous vectors."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        programs = triton.cdiv(n, ROWS * COLS)
        add_tile_kernel[(programs,)](x, y, out, n, ROWS=ROWS, COLS=COLS, num_warps=4)
    return out
