# labs/lab1_elementwise_add/elementwise_add.py | error | In `walking_add_kernel`, `offs = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)` is int32, and `offs += stride` in the loop makes it int64, as `stride` is int64: Triton refuses a loop-carried variable that changes its type (COMPILE_ERROR on a GPU or when compiled for one, for every n > 0; the interpreter does not notice). It should be `tl.program_id(axis=0).to(tl.int64) * BLOCK + ...`.
"""Add two vectors: a fixed number of programs, each of which walks through the vectors."""

import torch
import triton
import triton.language as tl

BLOCK = 2048
MOST_PROGRAMS = 2112  # a few for each multiprocessor
WARPS = 4


@triton.jit
def walking_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    steps,  # blocks of each program
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns blocks pid, pid + programs, pid + 2 * programs, ..."""
    # The first blocks of all programs lie within a few million elements.
    offs = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    # The walk goes past 2^31 elements in long vectors.
    stride = tl.num_programs(axis=0).to(tl.int64) * BLOCK
    for _ in range(steps):
        exists = offs < n
        x = tl.load(x_ptr + offs, mask=exists)
        y = tl.load(y_ptr + offs, mask=exists)
        tl.store(out_ptr + offs, x + y, mask=exists)
        offs += stride


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
    steps = triton.cdiv(blocks, programs)
    walking_add_kernel[(programs,)](x, y, out, n, steps, BLOCK=BLOCK, num_warps=WARPS)
    return out
