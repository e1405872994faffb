# labs/lab1_elementwise_add/elementwise_add.py | error | in elementwise_add_kernel, pos starts as int32 (tl.program_id(0) * BLOCK) and becomes int64 in the while loop (pos += hop, which is int64): Triton refuses a loop-carried variable that changes its type, so the kernel does not compile for a GPU (any n >= 1), although the interpreter runs it; it should start as tl.program_id(0).to(tl.int64) * BLOCK
"""Add two vectors with a limited number of programs that walk through them."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
MOST_PROGRAMS = 8192


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; a program takes every num_programs-th block, starting with block pid."""
    lane = tl.arange(0, BLOCK)
    pos = tl.program_id(0) * BLOCK
    hop = tl.num_programs(0).to(tl.int64) * BLOCK
    while pos < n:
        offs = pos + lane
        exists = offs < n
        left = tl.load(x_ptr + offs, mask=exists)
        right = tl.load(y_ptr + offs, mask=exists)
        tl.store(out_ptr + offs, left + right, mask=exists)
        pos += hop


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        programs = min(triton.cdiv(n, BLOCK), MOST_PROGRAMS)
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK)
    return out
