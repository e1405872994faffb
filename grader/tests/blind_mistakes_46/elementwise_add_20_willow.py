# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | In `number_of_program`, `row * tl.num_programs(axis=1) + column` should multiply by `tl.num_programs(axis=0)`: with more than 256 blocks (n > 262144, as 2^20 + 3) the wrong blocks are numbered (some twice, or with gaps), and others stay unwritten, unless both axes are equally long. In `elementwise_add`, `if n == 0: return torch.empty_like(x)` stands before `out` is looked at and returns a new tensor where `out` is given; it should return `out`: at n = 0 with `out`.
"""Add two vectors on a grid of two axes, so that no axis becomes long."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
WIDTH = 256  # programs along axis 0


@triton.jit
def number_of_program():
    """Count the programs of the grid, axis 0 first."""
    column = tl.program_id(axis=0)
    row = tl.program_id(axis=1).to(tl.int64)
    return row * tl.num_programs(axis=1) + column


@triton.jit
def grid_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i], one block for each program."""
    offs = number_of_program() * BLOCK + tl.arange(0, BLOCK)
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    n = x.numel()
    if n == 0:
        return torch.empty_like(x)
    if out is None:
        out = torch.empty_like(x)
    blocks = triton.cdiv(n, BLOCK)
    width = min(blocks, WIDTH)
    grid = (width, triton.cdiv(blocks, width))
    grid_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)
    return out
