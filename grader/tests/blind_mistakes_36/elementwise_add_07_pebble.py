# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | elementwise_add: the kernel takes the destination first (out_ptr, x_ptr, y_ptr), but the launch passes `x, y, out`, so y plus the old contents of out is stored into x, and out stays unwritten; in every case with n above 0; the launch should pass out, x, y
"""Add two vectors: a program owns a tile of ROWS rows, each of COLS neighbouring elements."""

import torch
import triton
import triton.language as tl

ROWS, COLS = 8, 128


@triton.jit
def elementwise_add_kernel(
    out_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    x_ptr,  # (n,) like out
    y_ptr,  # (n,) like out
    n,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """out[i] = x[i] + y[i]; the vector is cut into rows of COLS elements, and a program takes ROWS of them."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    tile = rows[:, None] * COLS + cols[None, :]
    valid = tile < n
    left = tl.load(x_ptr + tile, mask=valid)
    right = tl.load(y_ptr + tile, mask=valid)
    tl.store(out_ptr + tile, left + right, mask=valid)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    programs = triton.cdiv(n, ROWS * COLS)
    elementwise_add_kernel[(programs,)](x, y, out, n, ROWS=ROWS, COLS=COLS)
    return out
