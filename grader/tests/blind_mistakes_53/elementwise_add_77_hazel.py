# labs/lab1_elementwise_add/elementwise_add.py | right | Nothing is wrong. Unusual: two-dimensional tiles of 16 x 128, handed out from the last to the first, pointers that are advanced to the tile, an own `plus` function, and a branch per program: whole tiles without a mask, the ragged one with a mask. Offsets of a tile are int64.
"""Add two vectors, seen as tiles of ROWS lines of WIDTH elements, from the last tile to the first."""

import torch
import triton
import triton.language as tl

ROWS = 16
WIDTH = 128


@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Program 0 owns the last tile, which may be ragged, and the last program the first tile."""
    tile = tl.num_programs(axis=0) - 1 - tl.program_id(axis=0)
    start = tile.to(tl.int64) * (ROWS * WIDTH)
    x_ptr += start
    y_ptr += start
    out_ptr += start

    place = tl.arange(0, ROWS)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    if start + ROWS * WIDTH <= n:
        # All of the tile exists: nothing to mask, and wide accesses for every n.
        total = plus(tl.load(x_ptr + place), tl.load(y_ptr + place))
        tl.store(out_ptr + place, total)
    else:
        exists = place < n - start
        left = tl.load(x_ptr + place, mask=exists)
        right = tl.load(y_ptr + place, mask=exists)
        tl.store(out_ptr + place, plus(left, right), mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    tiles = triton.cdiv(x.numel(), ROWS * WIDTH)
    if tiles > 0:
        elementwise_add_kernel[(tiles,)](x, y, out, x.numel(), ROWS=ROWS, WIDTH=WIDTH, num_warps=4)
    return out
