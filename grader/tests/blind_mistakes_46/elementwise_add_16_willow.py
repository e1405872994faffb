# labs/lab1_elementwise_add/elementwise_add.py | contract | In `elementwise_add`, `out = torch.empty(n, device=x.device)` has torch's default dtype fp32; it should be `torch.empty_like(x)`. Without `out`, fp16 and bf16 inputs give a result of the wrong dtype, though its numbers are right; fp32 and calls with `out` are right.
"""Add two vectors: one program, several pieces of the result in an unrolled loop."""

import torch
import triton
import triton.language as tl

PIECE = 1024
PIECES = 2


@triton.jit
def pieces_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,)
    n,
    PIECE: tl.constexpr,
    PIECES: tl.constexpr,
):
    """Program pid owns PIECES neighbouring pieces of PIECE elements each."""
    start = tl.program_id(axis=0).to(tl.int64) * (PIECE * PIECES)
    lane = tl.arange(0, PIECE)
    for k in tl.static_range(PIECES):
        offs = start + k * PIECE + lane
        exists = offs < n
        x = tl.load(x_ptr + offs, mask=exists)
        y = tl.load(y_ptr + offs, mask=exists)
        tl.store(out_ptr + offs, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    n = x.numel()
    if out is None:
        out = torch.empty(n, device=x.device)
    if n > 0:
        grid = (triton.cdiv(n, PIECE * PIECES),)
        pieces_kernel[grid](x, y, out, n, PIECE=PIECE, PIECES=PIECES)
    return out
