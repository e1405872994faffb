# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In add_tile_kernel the tile of y is read with rows and columns exchanged: `where_b = first + i[None, :] * SIDE + j[:, None]` is the transpose of `where_a`. It should be `first + i[:, None] * SIDE + j[None, :]`, the same offsets as for x and out.
"""Add two vectors, a square tile of elements for each program."""

import torch
import triton
import triton.language as tl

SIDE = 32  # a program owns SIDE * SIDE = 1024 elements


@triton.jit
def add_tile_kernel(a_ptr, b_ptr, c_ptr, n, SIDE: tl.constexpr):
    """c = a + b for the tile of this program, seen as SIDE lines of SIDE elements."""
    first = tl.program_id(axis=0).to(tl.int64) * (SIDE * SIDE)
    i = tl.arange(0, SIDE)
    j = tl.arange(0, SIDE)
    where_a = first + i[:, None] * SIDE + j[None, :]
    where_b = first + i[None, :] * SIDE + j[:, None]
    a = tl.load(a_ptr + where_a, mask=where_a < n, other=0.0)
    b = tl.load(b_ptr + where_b, mask=where_b < n, other=0.0)
    tl.store(c_ptr + where_a, a + b, mask=where_a < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        tiles = triton.cdiv(n, SIDE * SIDE)
        add_tile_kernel[(tiles,)](x, y, out, n, SIDE=SIDE)
    return out
