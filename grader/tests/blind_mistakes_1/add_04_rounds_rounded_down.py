# lab1/elementwise_add.py | corner | host: rounds = tiles // PROGRAMS once there are more tiles than programs, rounded down, so the tiles of the last, incomplete round belong to no program | "launch enough programs to cover n elements"; n > 16 * 1024 whose number of tiles is no multiple of 16: the last (tiles mod 16) tiles stay unwritten
"""Add two vectors with at most sixteen programs that take turns."""

import torch
import triton
import triton.language as tl
from triton import cdiv

TILE = 1024
PROGRAMS = 16


@triton.jit
def add_in_rounds(a_ptr, b_ptr, c_ptr, n, rounds, TILE: tl.constexpr):
    lane = tl.arange(0, TILE)
    for turn in range(0, rounds):
        tile = (turn * tl.num_programs(0) + tl.program_id(0)).to(tl.int64)
        at = tile * TILE + lane
        exists = at < n
        c = tl.load(a_ptr + at, mask=exists, other=0) + tl.load(b_ptr + at, mask=exists, other=0)
        tl.store(c_ptr + at, c, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    tiles = cdiv(n, TILE)
    if tiles:
        programs = min(tiles, PROGRAMS)
        rounds = tiles // programs
        add_in_rounds[(programs,)](x, y, out, n, rounds, TILE=TILE)
    return out
