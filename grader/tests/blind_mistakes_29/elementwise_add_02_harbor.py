# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | in elementwise_add_kernel, inside the loop, the loads of the following sub-block assign to `a` and `b` before the current sums are stored, so out[i] becomes x[i + BLOCK] + y[i + BLOCK] in all sub-blocks of a program but its last (past n: whatever a masked load gives); shows for every n > 0; the prefetched values need names of their own (a_next, b_next), taken over after the store, or the store must come before the loads
"""Add two vectors; a program walks over STEPS blocks and keeps the next loads in flight."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
STEPS = 4


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, STEPS: tl.constexpr):
    first = tl.program_id(axis=0).to(tl.int64) * (BLOCK * STEPS)
    offs = first + tl.arange(0, BLOCK)

    a = tl.load(x_ptr + offs, mask=offs < n)
    b = tl.load(y_ptr + offs, mask=offs < n)
    for step in tl.static_range(STEPS):
        following = offs + BLOCK
        if step < STEPS - 1:
            a = tl.load(x_ptr + following, mask=following < n)
            b = tl.load(y_ptr + following, mask=following < n)
        tl.store(out_ptr + offs, a + b, mask=offs < n)
        offs = following


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y, into `out` if there is one."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    programs = triton.cdiv(n, BLOCK * STEPS)
    elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, STEPS=STEPS)
    return out
