# labs/lab1_elementwise_add/elementwise_add.py | error | In `elementwise_add_kernel`, `length = n.to(tl.int64)`: for n = 1 Triton makes the integer argument a constant, which has no `.to`, so the kernel does not compile (AttributeError of constexpr). It should be `tl.cast(n, tl.int64)` or n itself, as the program's number is int64 already. Only n = 1 fails (fp32 and bf16); all other sizes are right.
"""Add two vectors: each program has one consecutive share of them, as long as everybody else's."""

import torch
import triton
import triton.language as tl

BLOCK = 2048
PROGRAMS = 1056  # 8 for each of 132 multiprocessors
WARPS = 8


@triton.jit
def share_of(program, programs, length, BLOCK: tl.constexpr):
    """Where the share of a program begins and ends: whole blocks, but for the last share."""
    blocks = (length + BLOCK - 1) // BLOCK
    size = (blocks + programs - 1) // programs * BLOCK
    begin = program * size
    return begin, tl.minimum(begin + size, length)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i] for the elements of one share, BLOCK of them at a time."""
    length = n.to(tl.int64)
    program = tl.program_id(axis=0).to(tl.int64)
    begin, end = share_of(program, tl.num_programs(axis=0), length, BLOCK)
    lanes = tl.arange(0, BLOCK)
    for start in range(begin, end, BLOCK):
        offs = start + lanes
        exists = offs < length
        x = tl.load(x_ptr + offs, mask=exists)
        y = tl.load(y_ptr + offs, mask=exists)
        tl.store(out_ptr + offs, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        programs = min(triton.cdiv(n, BLOCK), PROGRAMS)
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, num_warps=WARPS)
    return out
