# labs/lab1_elementwise_add/elementwise_add.py | corner | in elementwise_add_kernel, the number of the block is `row * tl.num_programs(1) + column`, but a row of the grid has num_programs(0) programs; shows only where the grid has more than one row, n > 256 * 1024 = 262144 (of the graded sizes 2^20 + 3 and the timed ones): blocks repeat and others are never written (n = 2^20 + 3: 5 rows, so blocks 0 to 275 are written, and out from element 282624 on is unwritten); with at most 256 blocks row is 0 and all is right; it should be `row * tl.num_programs(0) + column`
"""Vector addition on a grid of rows and columns of programs."""

import torch
import triton
import triton.language as tl

TILE = 1024
COLUMNS = 256


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, TILE: tl.constexpr):
    column = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1).to(tl.int64)
    tile = row * tl.num_programs(1) + column

    index = tile * TILE + tl.arange(0, TILE)
    inside = index < n
    left = tl.load(x_ptr + index, mask=inside)
    right = tl.load(y_ptr + index, mask=inside)
    tl.store(out_ptr + index, left + right, mask=inside)


def grid_for(n: int):
    """Up to COLUMNS programs side by side, and as many rows of them as n needs."""
    tiles = triton.cdiv(n, TILE)
    return (min(tiles, COLUMNS), triton.cdiv(tiles, COLUMNS))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    total = x.new_empty(x.shape) if out is None else out
    n = x.numel()
    if n:
        elementwise_add_kernel[grid_for(n)](x, y, total, n, TILE=TILE)
    return total
