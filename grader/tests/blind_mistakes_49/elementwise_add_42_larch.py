# labs/lab1_elementwise_add/elementwise_add.py | right | Nothing is wrong. Unusual: two kernels, one without masks over two-dimensional tiles of 16 x 128 that are whole, and a second launch of one masked program for the n % 2048 elements that are left; n = 0 launches neither.
"""Add two vectors: one launch without masks for all whole tiles, a second one for what is left."""

import torch
import triton
import triton.language as tl

ROWS = 16
COLS = 128
TILE = ROWS * COLS


@triton.jit
def whole_tiles_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Every element of a tile exists. The tile has two axes, but its elements lie behind each other."""
    row = tl.arange(0, ROWS)
    col = tl.arange(0, COLS)
    start = tl.program_id(axis=0).to(tl.int64) * (ROWS * COLS)
    offs = start + (row[:, None] * COLS + col[None, :])
    tl.store(out_ptr + offs, tl.load(x_ptr + offs) + tl.load(y_ptr + offs))


@triton.jit
def remainder_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    done,  # elements that the whole tiles hold
    n,
    TILE: tl.constexpr,
):
    """One program for the elements from `done` on, which are fewer than TILE."""
    offs = done + tl.arange(0, TILE).to(tl.int64)
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    tiles, left = divmod(n, TILE)
    if tiles > 0:
        whole_tiles_kernel[(tiles,)](x, y, out, ROWS=ROWS, COLS=COLS)
    if left > 0:
        remainder_kernel[(1,)](x, y, out, tiles * TILE, n, TILE=TILE)
    return out
