# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) `compute_dtype` gives `tl.float16` for bf16 (`return tl.float32 if dtype == torch.float32 else tl.float16`), should be fp32 or bf16 itself: bf16 sums overflow above 65504, lose small numbers and are rounded twice; shows in bf16 only (edges, and some last digits in usual values). (2) In `elementwise_add`, `per_program = blocks // programs` should be `triton.cdiv(blocks, programs)`: the last blocks have no program where there are more than 528 blocks of 1024 and their number is no multiple of 528, e.g. n = 2^20 + 3 or 2^28, in all dtypes.
"""Add two vectors: a fixed number of programs, each with a run of neighbouring blocks."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
MOST_PROGRAMS = 528


def compute_dtype(dtype: torch.dtype):
    """The dtype that blocks of `dtype` are added in."""
    return tl.float32 if dtype == torch.float32 else tl.float16


@triton.jit
def run_of_blocks_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    per_program,  # blocks in the run of one program
    COMPUTE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program p owns the blocks p * per_program to (p + 1) * per_program - 1."""
    first = tl.program_id(axis=0).to(tl.int64) * per_program
    offs = first * BLOCK + tl.arange(0, BLOCK)
    for _ in range(per_program):
        mask = offs < n
        x = tl.load(x_ptr + offs, mask=mask).to(COMPUTE)
        y = tl.load(y_ptr + offs, mask=mask).to(COMPUTE)
        total = (x + y).to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + offs, total, mask=mask)
        offs += BLOCK


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    blocks = triton.cdiv(n, BLOCK)
    programs = min(blocks, MOST_PROGRAMS)
    per_program = blocks // programs
    run_of_blocks_kernel[(programs,)](
        x,
        y,
        out,
        n,
        per_program,
        COMPUTE=compute_dtype(x.dtype),
        BLOCK=BLOCK,
    )
    return out
