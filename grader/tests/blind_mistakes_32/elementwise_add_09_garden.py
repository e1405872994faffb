# labs/lab1_elementwise_add/elementwise_add.py | error | In _tile_offsets both index blocks are expanded along axis 1, so row is (8, 1) and col is (128, 1), and row * COLS + col cannot be broadcast (incompatible dimensions 8 and 128). Does not compile and does not run, for every n >= 1. It should be tl.expand_dims(tl.arange(0, COLS), 0) for col.
"""Add two vectors, seen as tiles of 8 rows of 128 elements."""

import torch
import triton
import triton.language as tl

ROWS = 8
COLS = 128


@triton.jit
def _tile_offsets(ROWS: tl.constexpr, COLS: tl.constexpr):
    row = tl.expand_dims(tl.arange(0, ROWS), 1)
    col = tl.expand_dims(tl.arange(0, COLS), 1)
    return row * COLS + col


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, ROWS: tl.constexpr, COLS: tl.constexpr):
    origin = tl.program_id(axis=0).to(tl.int64) * (ROWS * COLS)
    where = origin + _tile_offsets(ROWS, COLS)
    exists = where < n
    x = tl.load(x_ptr + where, mask=exists)
    y = tl.load(y_ptr + where, mask=exists)
    tl.store(out_ptr + where, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    tiles = triton.cdiv(n, ROWS * COLS)
    if tiles > 0:
        elementwise_add_kernel[(tiles,)](x, y, out, n, ROWS=ROWS, COLS=COLS)
    return out
