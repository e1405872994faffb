# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In `square_tile_kernel`, `y_at = start + line[None, :] * SIDE + line[:, None]` is the transposed tile; it should be the same as `x_at`. Each element but those on the diagonal of a tile gets another element of y (or a masked lane) for every n > 1.
"""Add two vectors: each program works on a square tile of the vector, row after row."""

import torch
import triton
import triton.language as tl

SIDE = 32


@triton.jit
def square_tile_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    SIDE: tl.constexpr,
):
    """Program pid owns SIDE * SIDE elements from pid * SIDE * SIDE on."""
    start = tl.program_id(axis=0).to(tl.int64) * (SIDE * SIDE)
    line = tl.arange(0, SIDE)
    x_at = start + line[:, None] * SIDE + line[None, :]
    y_at = start + line[None, :] * SIDE + line[:, None]
    x = tl.load(x_ptr + x_at, mask=x_at < n)
    y = tl.load(y_ptr + y_at, mask=y_at < n)
    tl.store(out_ptr + x_at, x + y, mask=x_at < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.shape[0]
    programs = triton.cdiv(n, SIDE * SIDE)
    if programs > 0:
        square_tile_kernel[(programs,)](x, y, out, n, SIDE=SIDE)
    return out
