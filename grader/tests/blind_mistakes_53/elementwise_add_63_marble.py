# labs/lab1_elementwise_add/elementwise_add.py | error | In `rows_of`, `min(MOST_ROWS, triton.cdiv(n, COLS))` need not be a power of two, but is the length of `tl.arange(0, ROWS)` in `place`; it should be `min(MOST_ROWS, triton.next_power_of_2(triton.cdiv(n, COLS)))`. Compile error (arange's range must be a power of 2) if cdiv(n, 128) is below 32 and no power of two, as n = 1536 (12 rows), 300 (3 rows), 3000 (24 rows); all other sizes are right.
"""Add two vectors: the vector is read as rows of 128 elements, and a program owns a few rows."""

import torch
import triton
import triton.language as tl

COLS = 128
MOST_ROWS = 32


@triton.jit
def place(pid, ROWS: tl.constexpr, COLS: tl.constexpr):
    """The offsets of tile pid, (ROWS, COLS); the rows lie one behind the other."""
    rows = pid.to(tl.int64) * ROWS + tl.arange(0, ROWS)
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
    """out[i] = x[i] + y[i]; program pid owns elements pid * ROWS * COLS to (pid + 1) * ROWS * COLS - 1."""
    offs = place(tl.program_id(axis=0), ROWS, COLS)
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


def rows_of(n: int) -> int:
    """Rows of a tile: a short vector gets a tile that is no larger than it needs."""
    return min(MOST_ROWS, triton.cdiv(n, COLS))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    rows = rows_of(n)
    grid = (triton.cdiv(n, rows * COLS),)
    elementwise_add_kernel[grid](x, y, out, n, ROWS=rows, COLS=COLS)
    return out
