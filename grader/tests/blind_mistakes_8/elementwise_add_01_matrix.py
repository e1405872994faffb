# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | `at = first + r * ROWS + c` gives the rows of the tile ROWS = 8 elements apart instead of COLS = 128, so rows overlap and most of each program's 1024 elements are never written; must be `r * COLS` (any n above 184).
"""x + y, where each program holds its elements as a small matrix."""

import torch
import triton
import triton.language as tl

ROWS, COLS = 8, 128  # the matrix of one program: COLS neighbours lie in one row


@triton.jit
def tile_kernel(x_ptr, y_ptr, out_ptr, n, ROWS: tl.constexpr, COLS: tl.constexpr):
    """out = x + y for ROWS * COLS elements in a row."""
    r = tl.arange(0, ROWS)[:, None]
    c = tl.arange(0, COLS)[None, :]
    first = tl.program_id(0).to(tl.int64) * (ROWS * COLS)
    at = first + r * ROWS + c
    inside = at < n
    a = tl.load(x_ptr + at, mask=inside)
    b = tl.load(y_ptr + at, mask=inside)
    tl.store(out_ptr + at, a + b, mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors; the sum goes to `out` where one is given."""
    if out is None:
        out = torch.empty_like(x)
    n = x.shape[0]
    programs = triton.cdiv(n, ROWS * COLS)
    if programs:
        tile_kernel[(programs,)](x, y, out, n, ROWS, COLS, num_warps=4)
    return out
