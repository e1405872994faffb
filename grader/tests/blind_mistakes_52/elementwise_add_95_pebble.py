# labs/lab1_elementwise_add/elementwise_add.py | right | Unusual: two-dimensional tiles of 4 x 512 without any mask for the whole tiles, and a second launch with a mask for the elements left over; shapes in a NamedTuple, divmod on the host, int64 offsets; launches nothing for n = 0.
"""Add two vectors: whole tiles without a mask, and what is left over in a second launch."""

import typing

import torch
import triton
import triton.language as tl


class Tile(typing.NamedTuple):
    ROWS: int = 4
    LANES: int = 512


TILE = Tile()
TAIL_BLOCK = 512


@triton.jit
def _sum_at(x_ptr, y_ptr, offs):
    return tl.load(x_ptr + offs) + tl.load(y_ptr + offs)


@triton.jit
def whole_tiles_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
):
    """One program, one tile of ROWS * LANES neighbours; each of them exists."""
    start = tl.program_id(axis=0).to(tl.int64) * (ROWS * LANES)
    rows = tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, LANES)[None, :]
    offs = start + rows * LANES + lanes
    tl.store(out_ptr + offs, _sum_at(x_ptr, y_ptr, offs))


@triton.jit
def left_over_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    start,  # where the last whole tile ends
    count,  # elements from there on, less than a tile
    BLOCK: tl.constexpr,
):
    """The elements from start to start + count - 1."""
    inside = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    exists = inside < count
    offs = inside.to(tl.int64) + start
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    size = TILE.ROWS * TILE.LANES
    tiles, left = divmod(x.numel(), size)
    if tiles:
        whole_tiles_kernel[(tiles,)](x, y, out, ROWS=TILE.ROWS, LANES=TILE.LANES)
    if left:
        grid = (triton.cdiv(left, TAIL_BLOCK),)
        left_over_kernel[grid](x, y, out, tiles * size, left, BLOCK=TAIL_BLOCK)
    return out
