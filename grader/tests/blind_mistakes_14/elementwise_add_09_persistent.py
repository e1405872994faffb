# labs/lab1_elementwise_add/elementwise_add.py | right | A grid of at most 2048 programs in which each goes through the vector in steps of num_programs * BLOCK (grid-stride loop), with the addition in a helper function.
"""Add two vectors: a fixed number of programs, each with many blocks of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 4096
MOST_PROGRAMS = 2048


@triton.jit
def add_block(x_ptr, y_ptr, out_ptr, where, n):
    """One block: load, add, store, for the positions that exist."""
    exists = where < n
    y = tl.load(y_ptr + where, mask=exists)
    x = tl.load(x_ptr + where, mask=exists)
    tl.store(out_ptr + where, x + y, mask=exists)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns the blocks pid, pid + programs, pid + 2 * programs, ..."""
    lanes = tl.arange(0, BLOCK)
    first = tl.program_id(axis=0).to(tl.int64) * BLOCK
    step = tl.num_programs(axis=0).to(tl.int64) * BLOCK
    for start in range(first, n, step):
        add_block(x_ptr, y_ptr, out_ptr, start + lanes, n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    programs = min(triton.cdiv(n, BLOCK), MOST_PROGRAMS)
    if programs > 0:
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, num_warps=8)
    return out
