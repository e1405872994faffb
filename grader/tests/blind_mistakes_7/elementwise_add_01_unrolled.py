# labs/lab1_elementwise_add/elementwise_add.py | corner | The line first = tl.program_id(axis=0).to(tl.int64) * BLOCK advances by one block although a program adds PIECES blocks; it must be multiplied by BLOCK * PIECES. The programs overlap and the end of out stays unwritten for every n above BLOCK * PIECES = 2048; up to there one program does everything rightly.
"""Add two vectors; each program adds PIECES blocks that lie one behind the other."""

import torch
import triton
import triton.language as tl

BLOCK = 512
PIECES = 4


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, PIECES: tl.constexpr):
    """out[i] = x[i] + y[i] for the BLOCK * PIECES elements of this program."""
    first = tl.program_id(axis=0).to(tl.int64) * BLOCK
    lanes = tl.arange(0, BLOCK)
    for piece in tl.static_range(PIECES):
        offs = first + piece * BLOCK + lanes
        exists = offs < n
        x = tl.load(x_ptr + offs, mask=exists)
        y = tl.load(y_ptr + offs, mask=exists)
        tl.store(out_ptr + offs, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        grid = (triton.cdiv(n, BLOCK * PIECES),)
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK, PIECES=PIECES)
    return out
