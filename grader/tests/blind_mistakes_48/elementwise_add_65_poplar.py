# labs/lab1_elementwise_add/elementwise_add.py | corner | In `shares`, `return programs, blocks // programs` rounds down; it should be `triton.cdiv(blocks, programs)`. Shows only for long vectors with more than 1024 blocks whose number is no multiple of 1024, as n = 2^20 + 3 (1025 blocks): the end of `out` is unwritten; up to 2^20 elements, and at n = 2^28, it is right.
"""Add two vectors: a limited number of programs, each with a run of neighbouring blocks."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
PROGRAMS = 1024  # about eight for each multiprocessor


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    turns,  # blocks of a program
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns blocks pid * turns to (pid + 1) * turns - 1."""
    first = tl.program_id(axis=0).to(tl.int64) * turns * BLOCK
    offs = first + tl.arange(0, BLOCK)
    for turn in range(turns):
        exists = offs < n
        a = tl.load(x_ptr + offs, mask=exists)
        b = tl.load(y_ptr + offs, mask=exists)
        tl.store(out_ptr + offs, a + b, mask=exists)
        offs += BLOCK


def shares(n: int):
    """How many programs there are for n elements, and how many blocks each of them has."""
    blocks = triton.cdiv(n, BLOCK)
    programs = min(blocks, PROGRAMS)
    return programs, blocks // programs


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        programs, turns = shares(n)
        elementwise_add_kernel[(programs,)](x, y, out, n, turns, BLOCK=BLOCK, num_warps=4)
    return out
