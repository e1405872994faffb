# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In `elementwise_add_kernel`, `y_at = first + row[None, :] * SIDE + col[:, None]` takes the tile of y transposed; it should be `first + row[:, None] * SIDE + col[None, :]` like x_at and out_at. Wrong for every n >= 2 (element i of x meets another element of y, or a masked lane); only the diagonal of each tile and n = 1 are right. No access is out of bounds.
"""Add two vectors: the vectors are cut into square tiles, one tile for each program."""

import torch
import triton
import triton.language as tl

SIDE = 32  # a tile has SIDE rows of SIDE neighbouring elements


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    SIDE: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * SIDE * SIDE to (pid + 1) * SIDE * SIDE - 1."""
    # 64 bits before the product: the last tile may begin past 2^31 elements
    first = tl.program_id(axis=0).to(tl.int64) * (SIDE * SIDE)
    row = tl.arange(0, SIDE)
    col = tl.arange(0, SIDE)

    x_at = first + row[:, None] * SIDE + col[None, :]
    y_at = first + row[None, :] * SIDE + col[:, None]
    out_at = first + row[:, None] * SIDE + col[None, :]

    x = tl.load(x_ptr + x_at, mask=x_at < n)
    y = tl.load(y_ptr + y_at, mask=y_at < n)
    tl.store(out_ptr + out_at, x + y, mask=out_at < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        tiles = triton.cdiv(n, SIDE * SIDE)
        elementwise_add_kernel[(tiles,)](x, y, out, n, SIDE=SIDE)
    return out
