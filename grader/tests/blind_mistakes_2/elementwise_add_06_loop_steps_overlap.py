# labs/lab1_elementwise_add/elementwise_add.py | contract | elementwise_add_kernel, range(...): the loop goes on by BLOCK and not by num_programs * BLOCK, so each program also does all blocks behind its own | "two programs access one element in no order, and one of them stores it"; n above BLOCK = 1024: several programs store the same elements (with the right values)
"""Add two vectors with a fixed number of programs, each of which walks over the vectors."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
MOST_PROGRAMS = 132 * 8


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out = x + y; program k begins at block k."""
    lanes = tl.arange(0, BLOCK)
    first = tl.program_id(axis=0).to(tl.int64) * BLOCK
    for start in range(first, n, BLOCK):
        offs = start + lanes
        inside = offs < n
        total = tl.load(x_ptr + offs, mask=inside) + tl.load(y_ptr + offs, mask=inside)
        tl.store(out_ptr + offs, total, mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        programs = min(triton.cdiv(n, BLOCK), MOST_PROGRAMS)
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK)
    return out
