# labs/lab1_elementwise_add/elementwise_add.py | right | Nothing is wrong. Unusual: tiles of three axes (2 x 16 x 64), programs numbered from the last tile to the first, and the sum as `tl.fma(x, one, y)` in fp32, which is rounded once to the dtype of `out` (no double rounding that shows in fp16 or bf16, and -0.0 is kept).
"""Add two vectors in tiles of three axes, last tile first, with one multiply-add for each element."""

import torch
import triton
import triton.language as tl

PLANES = 2
ROWS = 16
COLS = 64


@triton.jit
def tile_offsets(tile, PLANES: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Where the elements of a tile lie in the vector: neighbours along the last axis are neighbours."""
    plane = tl.arange(0, PLANES)[:, None, None] * (ROWS * COLS)
    row = tl.arange(0, ROWS)[None, :, None] * COLS
    col = tl.arange(0, COLS)[None, None, :]
    return tile * (PLANES * ROWS * COLS) + (plane + row + col)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    PLANES: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """out[i] = x[i] * 1 + y[i]; program 0 owns the last tile, the last program owns the first."""
    tile = (tl.num_programs(axis=0) - 1 - tl.program_id(axis=0)).to(tl.int64)
    offs = tile_offsets(tile, PLANES, ROWS, COLS)
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=exists, other=0.0).to(tl.float32)
    # The product with 1 is exact, so the sum is rounded once, and -0.0 stays -0.0.
    one = tl.full((PLANES, ROWS, COLS), 1.0, tl.float32)
    total = tl.fma(x, one, y)
    tl.store(out_ptr + offs, total.to(out_ptr.dtype.element_ty), mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    result = torch.empty_like(x) if out is None else out
    n = x.numel()
    tiles = triton.cdiv(n, PLANES * ROWS * COLS)
    if tiles > 0:
        elementwise_add_kernel[(tiles,)](
            x, y, result, n, PLANES=PLANES, ROWS=ROWS, COLS=COLS, num_warps=8
        )
    return result
