# labs/lab1_elementwise_add/elementwise_add.py | error | elementwise_add_kernel builds the mask from the flat r (8 numbers) and c (128 numbers), base + r * COLS + c < n, whose shapes do not broadcast: Triton cannot compile the kernel (incompatible dimensions 8 and 128), in every case with n > 0; should be cell < n, or r[:, None] * COLS + c[None, :] as in the offsets
"""Elementwise add on small tiles of the flat vector."""

import torch
import triton
import triton.language as tl

ROWS = 8
COLS = 128


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, ROWS: tl.constexpr, COLS: tl.constexpr):
    """The vector is cut into tiles of ROWS rows of COLS neighbours; one program adds one tile."""
    base = tl.program_id(0).to(tl.int64) * (ROWS * COLS)
    r = tl.arange(0, ROWS)
    c = tl.arange(0, COLS)

    cell = base + r[:, None] * COLS + c[None, :]
    keep = base + r * COLS + c < n

    a = tl.load(x_ptr + cell, mask=keep)
    b = tl.load(y_ptr + cell, mask=keep)
    tl.store(out_ptr + cell, a + b, mask=keep)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    result = torch.empty_like(x) if out is None else out
    n = x.numel()
    tiles = triton.cdiv(n, ROWS * COLS)
    if tiles > 0:
        elementwise_add_kernel[(tiles,)](x, y, result, n, ROWS=ROWS, COLS=COLS)
    return result
