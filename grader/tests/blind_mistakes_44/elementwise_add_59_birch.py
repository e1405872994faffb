# labs/lab1_elementwise_add/elementwise_add.py | error | `grid_for` puts the long axis into axis 1 of the grid: `return BLOCKS_A_ROW, triton.cdiv(n, BLOCKS_A_ROW * BLOCK)`. CUDA permits at most 65535 programs along axis 1, so the launch raises an invalid-argument error for n > 65535 * 2048 (about 2^27), e.g. at the graded n = 2^28; the rows should lie along axis 0 (or the grid have one axis). All smaller sizes are right.
"""Add two vectors on a two-dimensional grid: the vector is seen as rows of two blocks."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
BLOCKS_A_ROW = 2


@triton.jit
def grid_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """Axis 0 of the grid is the place in the row, axis 1 the row, as x and y of an image."""
    column = tl.program_id(axis=0)
    row = tl.program_id(axis=1).to(tl.int64)
    block = row * tl.num_programs(axis=0) + column

    offs = block * BLOCK + tl.arange(0, BLOCK)
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


def grid_for(n: int):
    """Enough rows of blocks for n elements; in the last row some blocks may be empty."""
    return BLOCKS_A_ROW, triton.cdiv(n, BLOCKS_A_ROW * BLOCK)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        grid_add_kernel[grid_for(n)](x, y, out, n, BLOCK=BLOCK, num_warps=4)
    return out
