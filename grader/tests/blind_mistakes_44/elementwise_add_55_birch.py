# labs/lab1_elementwise_add/elementwise_add.py | corner | In `tile_add_kernel`, `total = tl.zeros(...)` with `accumulate` adds both operands to +0.0; the sum should be x + y and nothing added to it (start with the block of x). Shows only in the sign of zero: -0.0 + -0.0 gives 0.0 in place of -0.0, in all dtypes.
"""Add two vectors: a program accumulates a two-dimensional tile of consecutive elements, operand by operand."""

import torch
import triton
import triton.language as tl

ROWS = 8
COLS = 256


@triton.jit
def tile_offsets(ROWS: tl.constexpr, COLS: tl.constexpr):
    """Places of this program's tile in the vectors, row after row."""
    start = tl.program_id(axis=0).to(tl.int64) * (ROWS * COLS)
    rows = tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, COLS)[None, :]
    return start + rows * COLS + cols


@triton.jit
def accumulate(total, ptr, offs, n):
    return total + tl.load(ptr + offs, mask=offs < n, other=0.0)


@triton.jit
def tile_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    offs = tile_offsets(ROWS, COLS)
    # One dtype throughout, so each sum is rounded as the result is.
    total = tl.zeros((ROWS, COLS), dtype=out_ptr.dtype.element_ty)
    total = accumulate(total, x_ptr, offs, n)
    total = accumulate(total, y_ptr, offs, n)
    tl.store(out_ptr + offs, total, mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    programs = triton.cdiv(n, ROWS * COLS)
    if programs > 0:
        tile_add_kernel[(programs,)](x, y, out, n, ROWS=ROWS, COLS=COLS)
    return out
