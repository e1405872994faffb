# labs/lab1_elementwise_add/elementwise_add.py | corner | In elementwise_add, `share = tiles // programs` rounds down: where there are more than 528 tiles of 1024 elements (n > 540672) and their number is no multiple of 528, the last tiles % 528 tiles belong to no program and stay unwritten, as with n = 2^20 + 3 in any dtype; smaller n are right. It should be `triton.cdiv(tiles, programs)`.
"""Add two vectors with a fixed number of programs, each with its share of the tiles."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
MOST_PROGRAMS = 132 * 4  # an H200 has 132 multiprocessors


@triton.jit
def elementwise_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    n,
    share,  # tiles of one program, which lie side by side
    BLOCK: tl.constexpr,
):
    start = tl.program_id(axis=0).to(tl.int64) * share * BLOCK
    for k in range(share):
        offs = start + k * BLOCK + tl.arange(0, BLOCK)
        mask = offs < n
        x = tl.load(x_ptr + offs, mask=mask)
        y = tl.load(y_ptr + offs, mask=mask)
        tl.store(out_ptr + offs, x + y, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    tiles = triton.cdiv(n, BLOCK)
    programs = min(tiles, MOST_PROGRAMS)
    share = tiles // programs
    elementwise_add_kernel[(programs,)](x, y, out, n, share, BLOCK=BLOCK)
    return out
