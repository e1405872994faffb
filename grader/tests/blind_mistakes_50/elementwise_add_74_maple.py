# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) In `elementwise_add_kernel`, `total = tl.zeros(...)` with `total += tl.load(x...)` and `total += tl.load(y...)`: the sum starts at 0.0, so -0.0 + -0.0 gives 0.0; it should be the sum of the two loads alone. It shows in the cases with values at the edges, in all dtypes. (2) `block = row.to(tl.int64) * tl.num_programs(axis=1) + column` should multiply by `tl.num_programs(axis=0)`, the length of a row: with more than one row of programs (n > 258 * 1024, such as 2^20 + 3) some blocks are done twice and others stay unwritten.
"""Add two vectors on a grid with two axes, so that neither axis gets long."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
WIDTH = 256  # programs along axis 0, where there are so many


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; the programs are numbered row by row, and each owns the block of its number."""
    column = tl.program_id(axis=0)
    row = tl.program_id(axis=1)
    block = row.to(tl.int64) * tl.num_programs(axis=1) + column
    offs = block * BLOCK + tl.arange(0, BLOCK)
    exists = offs < n

    total = tl.zeros((BLOCK,), dtype=out_ptr.dtype.element_ty)
    total += tl.load(x_ptr + offs, mask=exists)
    total += tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, total, mask=exists)


def grid_of(n: int) -> tuple:
    """A grid with at least one program for each block; rows are full but for a single short one."""
    blocks = triton.cdiv(n, BLOCK)
    return min(blocks, WIDTH), triton.cdiv(blocks, WIDTH)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        elementwise_add_kernel[grid_of(n)](x, y, out, n, BLOCK=BLOCK)
    return out
