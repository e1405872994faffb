# labs/lab1_elementwise_add/elementwise_add.py | corner | In rounded `bounded = tl.minimum(tl.maximum(total, -limit), limit)` clamps to the finite range of the dtype; the total should be converted as it is. Shows only where the sum is inf or -inf, from infinite inputs or overflow (the largest finite number comes out), and with NaN.
"""Add two vectors in fp32, two-dimensional tiles, and round to the dtype of the result."""

import torch
import triton
import triton.language as tl

ROWS = 8
LANES = 128


@triton.jit
def tile_offsets(ROWS: tl.constexpr, LANES: tl.constexpr):
    """(ROWS, LANES) offsets of the tile of this program: ROWS * LANES neighbours, row by row."""
    first = tl.program_id(axis=0).to(tl.int64) * (ROWS * LANES)
    rows = tl.arange(0, ROWS)
    lanes = tl.arange(0, LANES)
    return first + rows[:, None] * LANES + lanes[None, :]


@triton.jit
def rounded(total, limit, like_ptr):
    """An fp32 block in the dtype behind the pointer, within what this dtype can hold."""
    bounded = tl.minimum(tl.maximum(total, -limit), limit)
    return bounded.to(like_ptr.dtype.element_ty)


@triton.jit
def tiled_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    limit,  # largest number of the dtype
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
):
    """out[i] = x[i] + y[i] for a tile of ROWS * LANES elements."""
    offs = tile_offsets(ROWS, LANES)
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=exists).to(tl.float32)
    tl.store(out_ptr + offs, rounded(x + y, limit, out_ptr), mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    limit = torch.finfo(x.dtype).max
    grid = (triton.cdiv(n, ROWS * LANES),)
    tiled_add_kernel[grid](x, y, out, n, limit, ROWS=ROWS, LANES=LANES, num_warps=4)
    return out
