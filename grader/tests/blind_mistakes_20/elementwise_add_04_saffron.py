# labs/lab1_elementwise_add/elementwise_add.py | corner | In add_as_matrix the last row is given n % WIDTH columns, which is 0 if n is a multiple of WIDTH (128): the last 128 elements then stay unwritten. It should be (n - 1) % WIDTH + 1 (or n - last * WIDTH).
"""x + y, where the vectors are looked at as a matrix with rows of WIDTH elements, the last one possibly shorter."""

import torch
import triton
import triton.language as tl

ROWS = 16  # rows for one program
WIDTH = 128


@triton.jit
def add_as_matrix(x_ptr, y_ptr, out_ptr, n, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, WIDTH)

    # All rows are full, but for the last one, which holds what is left over.
    last = (n - 1) // WIDTH
    filled = tl.where(row < last, WIDTH, n % WIDTH)
    exists = (row[:, None] <= last) & (col[None, :] < filled[:, None])

    where = row[:, None] * WIDTH + col[None, :]
    total = tl.load(x_ptr + where, mask=exists) + tl.load(y_ptr + where, mask=exists)
    tl.store(out_ptr + where, total, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """The sum of two vectors of one dtype, in `out` if it is given."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        rows = triton.cdiv(n, WIDTH)
        add_as_matrix[(triton.cdiv(rows, ROWS),)](x, y, out, n, ROWS=ROWS, WIDTH=WIDTH)
    return out
