# labs/lab1_elementwise_add/elementwise_add.py | right | Nothing is wrong. Unusual: at most 4096 programs walk in a `while` loop with an int64 start from the last tile down to 0, in 16 x 128 tiles; whole tiles are added without a mask, only the partial one with a mask.
"""Add two vectors from the back to the front, in two-dimensional tiles, with few programs."""

import torch
import triton
import triton.language as tl

ROWS = 16
COLS = 128
TILE = ROWS * COLS
MOST_PROGRAMS = 4096


@triton.jit
def add_whole(x_ptr, y_ptr, out_ptr, offs):
    x = tl.load(x_ptr + offs)
    y = tl.load(y_ptr + offs)
    tl.store(out_ptr + offs, y + x)


@triton.jit
def add_partial(x_ptr, y_ptr, out_ptr, offs, n):
    # No lane past the end is stored, so it does not matter what the masked loads give.
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, y + x, mask=exists)


@triton.jit
def backward_walk_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    tiles,  # the last one may be partial
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Program p takes the tiles tiles - 1 - p, tiles - 1 - p - programs, ... down to 0."""
    within = tl.arange(0, ROWS)[:, None] * COLS + tl.arange(0, COLS)[None, :]
    start = (tiles - 1 - tl.program_id(axis=0)).to(tl.int64) * (ROWS * COLS)
    step = tl.num_programs(axis=0).to(tl.int64) * (ROWS * COLS)
    while start >= 0:
        if start + ROWS * COLS <= n:
            add_whole(x_ptr, y_ptr, out_ptr, start + within)
        else:
            add_partial(x_ptr, y_ptr, out_ptr, start + within, n)
        start -= step


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    tiles = triton.cdiv(n, TILE)
    programs = min(tiles, MOST_PROGRAMS)
    if programs > 0:
        backward_walk_kernel[(programs,)](x, y, out, n, tiles, ROWS=ROWS, COLS=COLS)
    return out
