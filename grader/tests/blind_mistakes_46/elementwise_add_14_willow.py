# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | In `elementwise_add`, `run = blocks // programs` rounds down; it should be `triton.cdiv(blocks, programs)`: the last blocks stay unwritten where there are more than 1024 blocks and no multiple of 1024, as at n = 2^20 + 3. In `run_of_blocks_kernel`, the sum starts from `total = tl.zeros(...)`, so -0.0 + -0.0 gives 0.0; it should store x + y alone: shows in the sign of zeros in all dtypes, at any n.
"""Add two vectors: a fixed number of programs, each with a run of neighbouring blocks."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
PROGRAMS = 1024  # about eight for each multiprocessor


@triton.jit
def run_of_blocks_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    run,  # blocks of one program
    BLOCK: tl.constexpr,
):
    """Program pid owns the blocks pid * run to (pid + 1) * run - 1."""
    first = tl.program_id(axis=0).to(tl.int64) * run
    lane = tl.arange(0, BLOCK)
    for k in range(run):
        offs = (first + k) * BLOCK + lane
        exists = offs < n
        total = tl.zeros((BLOCK,), dtype=out_ptr.dtype.element_ty)
        total += tl.load(x_ptr + offs, mask=exists)
        total += tl.load(y_ptr + offs, mask=exists)
        tl.store(out_ptr + offs, total, mask=exists)


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
    programs = min(blocks, PROGRAMS)
    run = blocks // programs
    run_of_blocks_kernel[(programs,)](x, y, out, n, run, BLOCK=BLOCK)
    return out
