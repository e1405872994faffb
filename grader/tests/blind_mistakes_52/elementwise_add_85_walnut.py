# labs/lab1_elementwise_add/elementwise_add.py | contract | In `elementwise_add`, `out = torch.empty((n,), device=x.device)` has the default dtype fp32; it should be `torch.empty_like(x)` (or `dtype=x.dtype`). Without `out`, fp16 and bf16 inputs give an fp32 tensor, although its numbers are right (added in the dtype of the inputs, then widened by the store).
"""Add two vectors in two-dimensional tiles, whose rows follow one another in memory."""

import torch
import triton
import triton.language as tl

ROWS = 8
LANES = 128


@triton.jit
def tile_offsets(tile, ROWS: tl.constexpr, LANES: tl.constexpr):
    """The (ROWS, LANES) offsets of a tile; as int64, because they may pass 2^31."""
    row = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    lane = tl.arange(0, LANES)
    return row[:, None] * LANES + lane[None, :]


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
):
    """out[i] = x[i] + y[i]; one program, one tile."""
    offs = tile_offsets(tl.program_id(axis=0), ROWS, LANES)
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    n = x.numel()
    if out is None:
        out = torch.empty((n,), device=x.device)
    if n > 0:
        grid = (triton.cdiv(n, ROWS * LANES),)
        elementwise_add_kernel[grid](x, y, out, n, ROWS=ROWS, LANES=LANES)
    return out
