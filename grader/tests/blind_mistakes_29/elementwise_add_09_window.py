# labs/lab1_elementwise_add/elementwise_add.py | right | right
"""Add two vectors: each program first moves the three pointers to its own block."""

import torch
import triton
import triton.language as tl

BYTES = 8192  # of each tensor, for one program


@triton.jit
def add_at(x_ptr, y_ptr, out_ptr, lane, mask):
    tl.store(out_ptr + lane, tl.load(x_ptr + lane, mask) + tl.load(y_ptr + lane, mask), mask)


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    skipped = tl.program_id(0).to(tl.int64) * BLOCK
    left = n - skipped
    lane = tl.arange(0, BLOCK)
    add_at(x_ptr + skipped, y_ptr + skipped, out_ptr + skipped, lane, lane < left)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    target = out
    if target is None:
        target = torch.empty_like(x)
    n = x.numel()
    block = BYTES // x.element_size()
    programs = -(-n // block)
    if programs:
        elementwise_add_kernel[(programs,)](x, y, target, n, BLOCK=block, num_warps=4)
    return target
