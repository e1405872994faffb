# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) In `rectangle`, `depth = blocks // width` should be `triton.cdiv(blocks, width)`: the last, partial row of programs is missing, and the end of `out` unwritten, where there are more than 1024 blocks and not a multiple of 1024 (n = 2^20 + 3). (2) In `elementwise_add`, `out = torch.empty(x.shape, device=x.device)` has the default dtype fp32; it should be `torch.empty_like(x)`; shows for fp16 and bf16 without `out`.
"""Add two vectors: the programs form a rectangle, so that no axis of the grid grows too long."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
WIDEST = 1024  # programs along axis 0; the others follow along axis 1


@triton.jit
def _owned(n, BLOCK: tl.constexpr):
    """Offsets of this program, row by row through the rectangle, and which of them exist."""
    row = tl.program_id(axis=1).to(tl.int64)
    number = row * tl.num_programs(axis=0) + tl.program_id(axis=0)
    offs = number * BLOCK + tl.arange(0, BLOCK)
    return offs, offs < n


@triton.jit
def folded_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; programs past the last block have no lane that exists."""
    offs, exists = _owned(n, BLOCK)
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


def rectangle(blocks: int) -> tuple:
    """Width and depth of the grid for this many blocks, at least one."""
    width = min(blocks, WIDEST)
    depth = blocks // width
    return width, depth


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty(x.shape, device=x.device)
    n = x.numel()
    if n > 0:
        blocks = triton.cdiv(n, BLOCK)
        folded_add_kernel[rectangle(blocks)](x, y, out, n, BLOCK=BLOCK)
    return out
