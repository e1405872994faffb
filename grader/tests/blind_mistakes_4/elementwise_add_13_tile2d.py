# labs/lab1_elementwise_add/elementwise_add.py | honest | a program has a tile of 8 x 256 elements with two-dimensional offsets and mask
"""Vector addition, each program has a small matrix of elements."""

import torch
import triton
import triton.language as tl

ROWS = 8
COLS = 256


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, ROWS: tl.constexpr, COLS: tl.constexpr):
    """out = x + y, a tile of ROWS lines with COLS neighbouring elements."""
    base = tl.program_id(axis=0).to(tl.int64) * (ROWS * COLS)
    r = tl.arange(0, ROWS)[:, None]
    c = tl.arange(0, COLS)[None, :]
    e = base + r * COLS + c
    exists = e < n
    a = tl.load(x_ptr + e, mask=exists)
    b = tl.load(y_ptr + e, mask=exists)
    tl.store(out_ptr + e, a + b, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        elementwise_add_kernel[(triton.cdiv(n, ROWS * COLS),)](x, y, out, n, ROWS=ROWS, COLS=COLS, num_warps=8)
    return out
