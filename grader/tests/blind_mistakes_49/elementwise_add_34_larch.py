# labs/lab1_elementwise_add/elementwise_add.py | corner | In the host function, `rounds = max(1, n // (programs * BLOCK))` rounds down; it should be `triton.cdiv(n, programs * BLOCK)`. The tail stays unwritten where n > 512 * 2048 = 2^20 and is no multiple of 2^20, such as n = 2^20 + 3; shorter vectors and n = 2^28 are right.
"""Add two vectors: a fixed number of programs that walk through the vector together."""

import torch
import triton
import triton.language as tl

BLOCK = 2048
MOST_PROGRAMS = 512  # about four for each multiprocessor of a large GPU


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    rounds,  # blocks of each program
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns the blocks pid, pid + programs, pid + 2 * programs, ..."""
    lanes = tl.arange(0, BLOCK)
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    hop = tl.num_programs(axis=0).to(tl.int64) * BLOCK
    for step in range(0, rounds):
        offs = start + lanes
        exists = offs < n
        x = tl.load(x_ptr + offs, mask=exists)
        y = tl.load(y_ptr + offs, mask=exists)
        tl.store(out_ptr + offs, x + y, mask=exists)
        start += hop


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    # A short vector gets one program for each of its blocks, and each of these one round.
    programs = min(triton.cdiv(n, BLOCK), MOST_PROGRAMS)
    rounds = max(1, n // (programs * BLOCK))
    elementwise_add_kernel[(programs,)](x, y, out, n, rounds, BLOCK=BLOCK, num_warps=8)
    return out
