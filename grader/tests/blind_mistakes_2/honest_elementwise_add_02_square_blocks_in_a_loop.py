# labs/lab1_elementwise_add/elementwise_add.py | honest | a block is 32 x 32 elements in two dimensions, and a limited number of programs takes every num_programs-th block | right for all inputs
"""Add two vectors, seen as squares of 32 x 32 elements."""

import torch
import triton
import triton.language as tl

SIDE = 32
PROGRAMS = 1024


@triton.jit
def square_kernel(x_ptr, y_ptr, out_ptr, n, SIDE: tl.constexpr):
    """Program k adds the squares k, k + programs, k + 2 * programs, ..."""
    inner = tl.arange(0, SIDE)[:, None] * SIDE + tl.arange(0, SIDE)[None, :]
    squares = tl.cdiv(n, SIDE * SIDE)
    for square in range(tl.program_id(0), squares, tl.num_programs(0)):
        offs = tl.cast(square, tl.int64) * (SIDE * SIDE) + inner
        inside = offs < n
        x = tl.load(x_ptr + offs, mask=inside, other=0.0)
        y = tl.load(y_ptr + offs, mask=inside, other=0.0)
        tl.store(out_ptr + offs, x + y, mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        squares = triton.cdiv(n, SIDE * SIDE)
        square_kernel[(min(squares, PROGRAMS),)](x, y, out, n, SIDE=SIDE)
    return out
