# labs/lab1_elementwise_add/elementwise_add.py | corner | elementwise_add_kernel, line 'block = ...': the two program numbers are joined with num_programs(0), it has to be num_programs(1), so blocks are skipped or done twice | "enough programs to cover n elements"; n from 1025 on but for 13 to 16 blocks of 256: with 5 to 12 blocks some are done by two programs and of 7, 8, 11, 12 the last ones by none, from 17 on blocks are left out; right up to 4 blocks and where both axes are equally long
"""Add two vectors: blocks dealt out over a grid of two axes."""

import torch
import triton
import triton.language as tl

BLOCK = 256
LANES = 4  # programs along the second axis


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i]; program (i, j) has one block."""
    block = tl.program_id(axis=0).to(tl.int64) * tl.num_programs(axis=0) + tl.program_id(axis=1)
    offs = block * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    y = tl.load(y_ptr + offs, mask=mask, other=0.0)
    tl.store(out_ptr + offs, x + y, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        blocks = triton.cdiv(n, BLOCK)
        # axis 0 alone may be long, the second axis is short
        elementwise_add_kernel[(triton.cdiv(blocks, LANES), LANES)](x, y, out, n, BLOCK=BLOCK)
    return out
