# labs/lab1_elementwise_add/elementwise_add.py | honest | Right: a fixed number of programs walks over the vector in large steps.
"""Elementwise add with a fixed number of programs: each one walks over the vector in large steps."""

import torch
import triton
import triton.language as tl

BLOCK = 256
PROGRAMS = 3 * 132


@triton.jit
def _sum_of(x_ptrs, y_ptrs, keep):
    """The two blocks, added."""
    return tl.load(x_ptrs, mask=keep) + tl.load(y_ptrs, mask=keep)


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Program pid has the blocks pid, pid + programs, pid + 2 * programs, ..."""
    pid = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    hop = tl.num_programs(axis=0).to(tl.int64) * BLOCK
    x_ptrs = x_ptr + pid * BLOCK + lanes
    y_ptrs = y_ptr + pid * BLOCK + lanes
    out_ptrs = out_ptr + pid * BLOCK + lanes
    left = n - pid * BLOCK  # elements from the present block on
    while left > 0:
        tl.store(out_ptrs, _sum_of(x_ptrs, y_ptrs, lanes < left), mask=lanes < left)
        x_ptrs += hop
        y_ptrs += hop
        out_ptrs += hop
        left -= hop


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    programs = min(PROGRAMS, triton.cdiv(n, BLOCK))
    elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK)
    return out
