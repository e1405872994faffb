# labs/lab1_elementwise_add/elementwise_add.py | error | in elementwise_add_kernel the addresses are a (ROWS, COLS) tile, while `inside = start + tl.arange(0, ROWS * COLS) < n` is a block of one axis with ROWS * COLS lanes, which cannot be broadcast to the tile: the first tl.load does not compile (nor run in the interpreter); shows in every case with n > 0; it should be `inside = offs < n`
"""Elementwise add in tiles: a vector seen as rows of 128 elements."""

import torch
import triton
import triton.language as tl

ROWS = 8
COLS = 128


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Program pid owns the rows pid * ROWS to (pid + 1) * ROWS - 1."""
    start = tl.program_id(axis=0).to(tl.int64) * (ROWS * COLS)
    rows = tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    offs = start + rows[:, None] * COLS + cols[None, :]
    inside = start + tl.arange(0, ROWS * COLS) < n

    tile_x = tl.load(x_ptr + offs, mask=inside)
    tile_y = tl.load(y_ptr + offs, mask=inside)
    tl.store(out_ptr + offs, tile_x + tile_y, mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    tiles = triton.cdiv(n, ROWS * COLS)
    if tiles > 0:
        elementwise_add_kernel[(tiles,)](x, y, out, n, ROWS=ROWS, COLS=COLS)
    return out
