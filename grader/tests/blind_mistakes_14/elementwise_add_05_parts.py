# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | `begin = tl.program_id(axis=0).to(tl.int64) * BLOCK` lacks the factor PARTS: a program handles PARTS blocks and the grid counts BLOCK * PARTS elements for each, so neighbouring programs overlap and about the last three quarters of out are never written; it should be `* (BLOCK * PARTS)`.
"""Add two vectors: one program, several neighbouring blocks of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 512  # elements per step
PARTS = 4  # steps per program, unrolled so that all loads are in flight together


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
):
    """out[i] = x[i] + y[i] for PARTS blocks, one after the other."""
    begin = tl.program_id(axis=0).to(tl.int64) * BLOCK
    lanes = tl.arange(0, BLOCK)
    for part in tl.static_range(PARTS):
        at = begin + part * BLOCK + lanes
        valid = at < n
        x = tl.load(x_ptr + at, mask=valid)
        y = tl.load(y_ptr + at, mask=valid)
        tl.store(out_ptr + at, x + y, mask=valid)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        programs = triton.cdiv(n, BLOCK * PARTS)
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, PARTS=PARTS)
    return out
