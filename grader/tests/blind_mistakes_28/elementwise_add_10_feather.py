# labs/lab1_elementwise_add/elementwise_add.py | error | elementwise_add_kernel loads tiles of shape (8, 128), but its mask exists = start + tl.arange(0, ROWS * COLS) < n has the shape (1024,). A mask of that shape cannot be broadcast to the pointers, so the kernel does not compile, in every case with n > 0. Should be exists = tile < n
"""Add two vectors in tiles of 8 rows with 128 elements each."""

import torch
import triton
import triton.language as tl

ROWS = 8
COLS = 128


@triton.jit
def elementwise_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    n,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """A vector is read as if it were a matrix with rows of COLS elements."""
    start = tl.program_id(axis=0).to(tl.int64) * (ROWS * COLS)
    exists = start + tl.arange(0, ROWS * COLS) < n
    row = tl.arange(0, ROWS)
    col = tl.arange(0, COLS)
    tile = start + row[:, None] * COLS + col[None, :]
    x = tl.load(x_ptr + tile, mask=exists)
    y = tl.load(y_ptr + tile, mask=exists)
    tl.store(out_ptr + tile, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        tiles = triton.cdiv(n, ROWS * COLS)
        elementwise_add_kernel[(tiles,)](x, y, out, n, ROWS=ROWS, COLS=COLS)
    return out
