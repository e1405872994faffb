# labs/lab1_elementwise_add/elementwise_add.py | contract | in elementwise_add, `torch.empty(x.shape, device=x.device)` has no dtype, so the new tensor is fp32: where no out is given and x is fp16 or bf16, the numbers are right, but the returned tensor has not the dtype of x, as "a new tensor like x" asks; fp32 and all calls with out are right; should be torch.empty_like(x), or with dtype=x.dtype
"""Add two vectors. A program owns a tile of ROWS x COLS elements, which lie one behind the other in memory."""

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
    corner = tl.program_id(0).to(tl.int64) * (ROWS * COLS)
    row = tl.arange(0, ROWS)
    col = tl.arange(0, COLS)
    where = corner + row[:, None] * COLS + col[None, :]
    alive = where < n
    total = tl.load(x_ptr + where, mask=alive) + tl.load(y_ptr + where, mask=alive)
    tl.store(out_ptr + where, total, mask=alive)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors; n may be 0."""
    if out is None:
        out = torch.empty(x.shape, device=x.device)
    n = x.numel()
    tiles = triton.cdiv(n, ROWS * COLS)
    if tiles:
        elementwise_add_kernel[(tiles,)](x, y, out, n, ROWS=ROWS, COLS=COLS)
    return out
