# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) In `elementwise_add_kernel`, `total = tl.zeros((BLOCK,), dtype=tl.float32)`, to which both vectors are added: -0.0 + -0.0 becomes 0.0; the sum must start from x. It shows where both elements are -0.0 (the values "edges"). (2) In `_shares`, `return programs, blocks // programs` must round up, `triton.cdiv(blocks, programs)`: with more than 1024 blocks of 512 that are no multiple of 1024 the last blocks are unwritten, e.g. the last 3 elements at n = 2^20 + 3.
"""Add two vectors: each program owns a stretch of neighbouring blocks."""

import torch
import triton
import triton.language as tl

BLOCK = 512
MOST_PROGRAMS = 1024


@triton.jit
def _accumulate(total, ptr, offs, inside):
    """total plus one more vector, in fp32."""
    return total + tl.load(ptr + offs, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    per_program,  # blocks of one program
    BLOCK: tl.constexpr,
):
    """Program pid owns blocks pid * per_program to (pid + 1) * per_program - 1."""
    lane = tl.arange(0, BLOCK)
    first = tl.program_id(axis=0).to(tl.int64) * per_program * BLOCK

    for turn in range(per_program):
        offs = first + turn * BLOCK + lane
        inside = offs < n
        total = tl.zeros((BLOCK,), dtype=tl.float32)
        total = _accumulate(total, x_ptr, offs, inside)
        total = _accumulate(total, y_ptr, offs, inside)
        tl.store(out_ptr + offs, total.to(out_ptr.dtype.element_ty), mask=inside)


def _shares(n: int):
    """(programs, blocks of each program)"""
    blocks = triton.cdiv(n, BLOCK)
    programs = min(blocks, MOST_PROGRAMS)
    return programs, blocks // programs


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    programs, per_program = _shares(n)
    elementwise_add_kernel[(programs,)](x, y, out, n, per_program, BLOCK=BLOCK, num_warps=4)
    return out
