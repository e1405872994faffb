# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In `add_blocks`, `tl.fma(x, y, one)` is x * y + 1, not the sum: `tl.fma(x, one, y)` (or `x + y`) is meant. Shows for every n >= 1 and all dtypes.
"""Add two vectors with a fixed number of programs, each of which walks over the vectors in strides."""

import torch
import triton
import triton.language as tl

BLOCK = 2048
MOST_PROGRAMS = 4096


@triton.jit
def add_blocks(x, y):
    """The sum of two blocks by one fused instruction, which rounds once."""
    one = tl.full(x.shape, 1.0, x.dtype)
    return tl.fma(x, y, one)


@triton.jit
def strided_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    n,
    tiles,  # blocks in n elements, the last one may be partial
    BLOCK: tl.constexpr,
):
    """Program p owns the tiles p, p + programs, p + 2 * programs, ..."""
    first = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    for tile in range(first, tiles, tl.num_programs(axis=0)):
        offs = tile * BLOCK + lanes
        exists = offs < n
        x = tl.load(x_ptr + offs, mask=exists)
        y = tl.load(y_ptr + offs, mask=exists)
        tl.store(out_ptr + offs, add_blocks(x, y), mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    tiles = triton.cdiv(n, BLOCK)
    programs = min(tiles, MOST_PROGRAMS)
    if programs > 0:
        strided_add_kernel[(programs,)](x, y, out, n, tiles, BLOCK=BLOCK, num_warps=8)
    return out
