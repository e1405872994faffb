# labs/lab1_elementwise_add/elementwise_add.py | corner | In `elementwise_add_kernel`, `total = tl.zeros((BLOCK,), dtype=out_ptr.dtype.element_ty)` starts the sum from 0.0, so -0.0 + -0.0 becomes 0.0 instead of -0.0; it should start from the block of x (or from -0.0). It shows only where both inputs are -0.0 (the cases with values at the edges), in every dtype.
"""Add two vectors as a running total over the terms, in a loop over blocks."""

import torch
import triton
import triton.language as tl

BLOCK = 2048
MOST_PROGRAMS = 4096


@triton.jit
def take_in(total, term_ptr, offs, exists):
    """The total with one more term."""
    return total + tl.load(term_ptr + offs, mask=exists)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    blocks,  # n / BLOCK, rounded up
    BLOCK: tl.constexpr,
):
    """Program pid owns every block whose number is pid plus a multiple of the number of programs."""
    pid = tl.program_id(axis=0)
    programs = tl.num_programs(axis=0)
    offs = pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    for _ in range(pid, blocks, programs):
        exists = offs < n
        total = tl.zeros((BLOCK,), dtype=out_ptr.dtype.element_ty)
        total = take_in(total, x_ptr, offs, exists)
        total = take_in(total, y_ptr, offs, exists)
        tl.store(out_ptr + offs, total, mask=exists)
        offs += programs.to(tl.int64) * BLOCK


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    blocks = triton.cdiv(n, BLOCK)
    if blocks > 0:
        grid = (min(blocks, MOST_PROGRAMS),)
        elementwise_add_kernel[grid](x, y, out, n, blocks, BLOCK=BLOCK, num_warps=8)
    return out
