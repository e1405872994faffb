# labs/lab1_elementwise_add/elementwise_add.py | right | right
"""out = x + y. Tiles that are full are added without a mask, the last one with it."""

import torch
import triton
import triton.language as tl

HIGH, WIDE = 4, 512


@triton.jit
def add_tile(x_ptr, y_ptr, out_ptr, n, HIGH: tl.constexpr, WIDE: tl.constexpr):
    """A tile is HIGH lines of WIDE neighbours; tile t begins at element t * HIGH * WIDE."""
    first = tl.program_id(axis=0).to(tl.int64) * (HIGH * WIDE)
    remaining = n - first
    lanes = tl.arange(0, HIGH)[:, None] * WIDE + tl.arange(0, WIDE)[None, :]
    x_tile = x_ptr + first + lanes
    y_tile = y_ptr + first + lanes
    out_tile = out_ptr + first + lanes
    if remaining >= HIGH * WIDE:
        tl.store(out_tile, tl.load(x_tile) + tl.load(y_tile))
    else:
        exists = lanes < remaining
        x = tl.load(x_tile, mask=exists)
        y = tl.load(y_tile, mask=exists)
        tl.store(out_tile, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous vectors of any length, also 0; written to `out` where it is given."""
    assert x.shape == y.shape, "x and y must have the same shape"
    if out is None:
        out = torch.empty_like(x)
    n = x.size(0)
    tiles = triton.cdiv(n, HIGH * WIDE)
    if tiles:
        add_tile[(tiles,)](x, y, out, n, HIGH=HIGH, WIDE=WIDE, num_warps=8)
    return out
