# labs/lab1_elementwise_add/elementwise_add.py | error | in elementwise_add_kernel the mask is computed from row (ROWS,) and col (COLS,) without [:, None] and [None, :], so row * COLS + col adds blocks of 8 and 128 elements, which do not broadcast; fails to compile (and to run) for every n > 0; should be exists = offs < n, the two-dimensional offsets
"""Add two vectors, a block seen as a small tile of rows."""

import torch
import triton
import triton.language as tl

ROWS = 8
COLS = 128


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Program pid owns ROWS * COLS neighbours; row r of its tile has COLS of them."""
    start = tl.program_id(0).to(tl.int64) * (ROWS * COLS)
    row = tl.arange(0, ROWS)
    col = tl.arange(0, COLS)
    offs = start + row[:, None] * COLS + col[None, :]
    exists = start + row * COLS + col < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    tiles = triton.cdiv(n, ROWS * COLS)
    if tiles > 0:
        elementwise_add_kernel[(tiles,)](x, y, out, n, ROWS=ROWS, COLS=COLS)
    return out
