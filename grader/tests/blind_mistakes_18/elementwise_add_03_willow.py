# labs/lab1_elementwise_add/elementwise_add.py | right | right
"""Add two vectors, cut into tiles: a program owns ROWS lines of COLS elements that follow each other in memory."""

import torch
import triton
import triton.language as tl

ROWS = 8
COLS = 256
TILE = ROWS * COLS


@triton.jit
def places(n, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Return the numbers of the elements of this program's tile, and which of them exist."""
    first = tl.program_id(axis=0).to(tl.int64) * (ROWS * COLS)
    line = tl.arange(0, ROWS)[:, None] * COLS
    where = first + line + tl.arange(0, COLS)[None, :]
    return where, where < n


@triton.jit
def add_tiles(left_ptr, right_ptr, sum_ptr, n, ROWS: tl.constexpr, COLS: tl.constexpr):
    """sum[i] = left[i] + right[i], for three contiguous vectors of n elements of one dtype."""
    where, real = places(n, ROWS, COLS)
    left = tl.load(left_ptr + where, mask=real)
    right = tl.load(right_ptr + where, mask=real)
    tl.store(sum_ptr + where, left + right, mask=real)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    result = torch.empty_like(x) if out is None else out
    n = x.numel()
    whole, rest = divmod(n, TILE)
    tiles = whole + 1 if rest > 0 else whole
    if tiles > 0:
        add_tiles[(tiles,)](x, y, result, n, ROWS=ROWS, COLS=COLS)
    return result
