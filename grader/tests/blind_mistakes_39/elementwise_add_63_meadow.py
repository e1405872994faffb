# labs/lab1_elementwise_add/elementwise_add.py | corner | In elementwise_add_kernel the partial last block is left to the program with `me == whole`, but elementwise_add launches at most RESIDENT = 396 programs, so with 396 or more whole blocks (n > 396 * 2048 = 811008) that program does not exist and the last n % 2048 elements stay unwritten; it shows for large n that are no multiple of 2048 (as 2**20 + 3), in all dtypes; it should be `me == whole % stride`, with the tail at whole * BLOCK.
"""Add two vectors with a fixed crew of programs, which take blocks in turns."""

import torch
import triton
import triton.language as tl

BLOCK = 2048
RESIDENT = 396  # three programs for each of 132 multiprocessors


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Whole blocks need no mask; the rest, shorter than a block, is done with one."""
    me = tl.program_id(axis=0).to(tl.int64)
    stride = tl.num_programs(axis=0)
    whole = n // BLOCK
    lane = tl.arange(0, BLOCK)

    for block in range(me, whole, stride):
        at = block * BLOCK + lane
        tl.store(out_ptr + at, tl.load(x_ptr + at) + tl.load(y_ptr + at))

    if me == whole:
        at = me * BLOCK + lane
        rest = at < n
        x = tl.load(x_ptr + at, mask=rest)
        y = tl.load(y_ptr + at, mask=rest)
        tl.store(out_ptr + at, x + y, mask=rest)


def programs_for(n: int) -> int:
    """One program for each whole block and one for the rest, but no more than the crew."""
    return min(n // BLOCK + 1, RESIDENT)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """The sum of two contiguous vectors of one dtype."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        elementwise_add_kernel[(programs_for(n),)](x, y, out, n, BLOCK=BLOCK, num_warps=8)
    return out
