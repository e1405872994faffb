# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) the loop of elementwise_add_kernel moves x_at and out_at on by BLOCK but not y_at, so from the second step of a program on, y of its first BLOCK = 512 elements is added again: wrong for n > 512; should also have y_at += BLOCK. (2) the mask is offs < last with last = n - 1, so the last element is never written, in every case with n > 0; should be offs < n
"""Add two vectors: each program walks over several blocks with its pointers."""

import torch
import triton
import triton.language as tl

BLOCK = 512
STEPS = 4


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, STEPS: tl.constexpr):
    """Program pid owns STEPS blocks that follow each other, from pid * STEPS * BLOCK on."""
    last = n - 1
    pid = tl.program_id(axis=0).to(tl.int64)
    offs = pid * STEPS * BLOCK + tl.arange(0, BLOCK)
    x_at = x_ptr + offs
    y_at = y_ptr + offs
    out_at = out_ptr + offs

    for step in tl.static_range(STEPS):
        inside = offs < last
        x = tl.load(x_at, mask=inside)
        y = tl.load(y_at, mask=inside)
        tl.store(out_at, x + y, mask=inside)
        offs += BLOCK
        x_at += BLOCK
        out_at += BLOCK


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """The sum of two vectors of one dtype, in `out` where it is given."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    if n > 0:
        programs = triton.cdiv(n, STEPS * BLOCK)
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, STEPS=STEPS)
    return out
