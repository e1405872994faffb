# labs/lab1_elementwise_add/elementwise_add.py | error | elementwise_add_kernel: `inside` has the shape (ROWS * COLS,) while the pointers are a (ROWS, COLS) tile, so tl.load cannot broadcast the mask and raises ValueError at every launch. It should be inside = spot < n.
"""Vector addition in tiles: a program takes ROWS lines of COLS neighbours each."""

import torch
import triton
import triton.language as tl

ROWS = 8
COLS = 256


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, ROWS: tl.constexpr, COLS: tl.constexpr):
    """out = x + y on one tile of ROWS * COLS elements that lie side by side."""
    corner = tl.program_id(axis=0).to(tl.int64) * (ROWS * COLS)
    line = tl.arange(0, ROWS)
    place = tl.arange(0, COLS)
    spot = corner + line[:, None] * COLS + place[None, :]
    inside = corner + tl.arange(0, ROWS * COLS) < n
    a = tl.load(x_ptr + spot, mask=inside)
    b = tl.load(y_ptr + spot, mask=inside)
    tl.store(out_ptr + spot, a + b, mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y; the sum goes to `out` where one is given, else to a new tensor."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    tiles = triton.cdiv(n, ROWS * COLS)
    if tiles > 0:
        elementwise_add_kernel[(tiles,)](x, y, out, n, ROWS=ROWS, COLS=COLS, num_warps=8)
    return out
