# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In `elementwise_add_kernel`, `total = tl.fma(x, y, one)` computes x * y + 1, because `tl.fma(a, b, c)` is a * b + c. It should be `tl.fma(x, one, y)` (or `x + y`). Shows in all cases with elements.
"""Add two vectors, seen as rows of 128 numbers; a program adds a tile of such rows."""

import torch
import triton
import triton.language as tl

ROWS = 8
COLS = 128


@triton.jit
def tile_offsets(ROWS: tl.constexpr, COLS: tl.constexpr):
    """Where the elements of this program's tile lie in the vector."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    return rows[:, None] * COLS + cols[None, :]


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """out[i] = x[i] + y[i] for the ROWS * COLS elements of one tile."""
    offs = tile_offsets(ROWS, COLS)
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists, other=0.0)
    y = tl.load(y_ptr + offs, mask=exists, other=0.0)
    # A fused multiply-add rounds once, as an addition does.
    one = tl.full((ROWS, COLS), 1.0, x.dtype)
    total = tl.fma(x, y, one)
    tl.store(out_ptr + offs, total, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    tiles = triton.cdiv(n, ROWS * COLS)
    elementwise_add_kernel[(tiles,)](x, y, out, n, ROWS=ROWS, COLS=COLS, num_warps=4)
    return out
