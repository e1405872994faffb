# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In `inside = r[:, None] * ROWS + c[None, :]` the rows of the tile are ROWS (8) elements apart, so they overlap and most of each tile is never written; it should be `r[:, None] * COLS + c[None, :]`.
"""Add two vectors: one program, one block of the result."""

import torch
import triton
import triton.language as tl

# A program has a tile of 8 x 128 elements, i.e. the vector is seen as a matrix with 128 columns.
ROWS = 8
COLS = 128


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program t owns the t-th tile of ROWS * COLS elements."""
    t = tl.program_id(axis=0).to(tl.int64)
    r = tl.arange(0, ROWS)
    c = tl.arange(0, COLS)
    inside = r[:, None] * ROWS + c[None, :]
    idx = t * (ROWS * COLS) + inside
    ok = idx < n

    a = tl.load(x_ptr + idx, mask=ok)
    b = tl.load(y_ptr + idx, mask=ok)
    tl.store(out_ptr + idx, a + b, mask=ok)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    tiles = triton.cdiv(n, ROWS * COLS)
    if tiles > 0:
        elementwise_add_kernel[(tiles,)](x, y, out, n, ROWS=ROWS, COLS=COLS, num_warps=4)
    return out
