# labs/lab1_elementwise_add/elementwise_add.py | corner | In `elementwise_add_kernel`, `block = down * tl.num_programs(axis=1) + along` must be `down * tl.num_programs(axis=0) + along`: the tiles are counted along axis 0 first. It shows only where axis 1 has more than one program and tiles are then left out, i.e. for long vectors (more than 514 * 1024 elements, such as 2^20 + 3 and 2^28): most of the later elements are unwritten.
"""Add two vectors: a two-dimensional grid of programs, each with a two-dimensional tile."""

import torch
import triton
import triton.language as tl

ROWS = 8  # rows of a tile
COLS = 128  # neighbours in memory
ACROSS = 512  # programs along axis 0; what is left goes to axis 1


@triton.jit
def _tile_index(block, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Indices of one tile: ROWS lines of COLS neighbours, one line behind the other."""
    first = block * (ROWS * COLS)
    row = tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, COLS)[None, :]
    return first + row * COLS + col


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """The tiles are counted along axis 0 first, then along axis 1."""
    along = tl.program_id(axis=0).to(tl.int64)
    down = tl.program_id(axis=1).to(tl.int64)
    block = down * tl.num_programs(axis=1) + along

    index = _tile_index(block, ROWS, COLS)
    exists = index < n

    x = tl.load(x_ptr + index, mask=exists)
    y = tl.load(y_ptr + index, mask=exists)
    tl.store(out_ptr + index, x + y, mask=exists)


def _grid_of(blocks: int):
    """(programs along axis 0, programs along axis 1), together at least `blocks`."""
    width = min(blocks, ACROSS)
    return (width, triton.cdiv(blocks, width))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        grid = _grid_of(triton.cdiv(n, ROWS * COLS))
        elementwise_add_kernel[grid](x, y, out, n, ROWS=ROWS, COLS=COLS, num_warps=4)
    return out
