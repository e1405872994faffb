# labs/lab1_elementwise_add/elementwise_add.py | right | right
"""Add two vectors with a fixed number of programs that walk through the data."""

import torch
import triton
import triton.language as tl

BLOCK = 2048
MAX_PROGRAMS = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    begin = tl.program_id(axis=0).to(tl.int64) * BLOCK
    step = tl.num_programs(axis=0) * BLOCK
    for base in range(begin, n, step):
        offs = base + lane
        inside = offs < n
        x = tl.load(x_ptr + offs, mask=inside)
        y = tl.load(y_ptr + offs, mask=inside)
        tl.store(out_ptr + offs, x + y, mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.shape[0]
    if n == 0:
        return out
    programs = min(MAX_PROGRAMS, triton.cdiv(n, BLOCK))
    elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, num_warps=8)
    return out
