# labs/lab1_elementwise_add/elementwise_add.py | right | Two-dimensional tiles (8 rows of 256 neighbours) over the flat vector, and a grid of at most 8192 programs that step over the tiles in a loop, with int64 offsets that are carried and moved on by a step; loads with evict_first.
"""Add two vectors in two-dimensional tiles, with a limited number of programs that walk over them."""

import torch
import triton
import triton.language as tl

ROWS = 8
COLS = 256
MOST_PROGRAMS = 8192


@triton.jit
def tile_at(first, ROWS: tl.constexpr, COLS: tl.constexpr):
    """ROWS * COLS offsets that follow each other, folded to a tile: rows of COLS neighbours."""
    row = tl.arange(0, ROWS)
    col = tl.arange(0, COLS)
    return first + (row[:, None] * COLS + col[None, :])


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    tiles,  # number of tiles that cover n elements
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns tiles pid, pid + programs, pid + 2 * programs, ..."""
    pid = tl.program_id(axis=0)
    programs = tl.num_programs(axis=0)
    offs = tile_at(pid.to(tl.int64) * (ROWS * COLS), ROWS, COLS)
    step = programs.to(tl.int64) * (ROWS * COLS)
    for _ in range(pid, tiles, programs):
        exists = offs < n
        x = tl.load(x_ptr + offs, mask=exists, eviction_policy="evict_first")
        y = tl.load(y_ptr + offs, mask=exists, eviction_policy="evict_first")
        tl.store(out_ptr + offs, x + y, mask=exists)
        offs += step


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    tiles = triton.cdiv(n, ROWS * COLS)
    if tiles:
        grid = (min(tiles, MOST_PROGRAMS),)
        elementwise_add_kernel[grid](x, y, out, n, tiles, ROWS=ROWS, COLS=COLS)
    return out
