# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) In the host function `per_program = blocks // programs` should be `triton.cdiv(blocks, programs)`: for more than 512 blocks that 512 does not divide, as n = 2^20 + 3, the end stays unwritten. (2) In run_of_blocks_kernel the total starts from `tl.zeros((BLOCK,), dtype=tl.float32)` and x is added to it; it should start from x, because -0.0 + -0.0 becomes 0.0 (values at the edges, any size).
"""Add two vectors with a fixed number of programs, each with a run of neighbouring blocks."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
MOST_PROGRAMS = 512


@triton.jit
def plus(total, ptr, offs, exists):
    """The running total and one more operand, in fp32."""
    return total + tl.load(ptr + offs, mask=exists).to(tl.float32)


@triton.jit
def run_of_blocks_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    per_program,  # blocks of one program
    BLOCK: tl.constexpr,
):
    """Program pid owns blocks pid * per_program to (pid + 1) * per_program - 1."""
    first_block = tl.program_id(axis=0).to(tl.int64) * per_program
    lanes = tl.arange(0, BLOCK)
    for turn in range(per_program):
        offs = (first_block + turn) * BLOCK + lanes
        exists = offs < n
        total = tl.zeros((BLOCK,), dtype=tl.float32)
        total = plus(total, x_ptr, offs, exists)
        total = plus(total, y_ptr, offs, exists)
        tl.store(out_ptr + offs, total.to(out_ptr.dtype.element_ty), mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        blocks = triton.cdiv(n, BLOCK)
        programs = min(blocks, MOST_PROGRAMS)
        per_program = blocks // programs
        run_of_blocks_kernel[(programs,)](x, y, out, n, per_program, BLOCK=BLOCK, num_warps=4)
    return out
