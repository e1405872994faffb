# labs/lab1_elementwise_add/elementwise_add.py | corner | the sum starts from 0.0 (`torch.zeros_like(x)` / `out.zero_()`, and both terms are added to it by add_into), so it computes (0.0 + x) + y; must store x + y and nothing added to it. Shows where x and y are both -0.0: the result is 0.0 and its sign bit is wrong; all other values are right.
"""Sum of two vectors, one term after the other: the same kernel serves any number of terms."""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def add_into(total_ptr, term_ptr, n, BLOCK: tl.constexpr):
    """total[i] += term[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    so_far = tl.load(total_ptr + offs, mask=mask, other=0.0)
    term = tl.load(term_ptr + offs, mask=mask, other=0.0)
    tl.store(total_ptr + offs, so_far + term, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y. What is in `out` is not an input, so it is cleared first."""
    n = x.numel()
    if out is None:
        out = torch.zeros_like(x)
    else:
        out.zero_()
    if n == 0:
        return out
    grid = (triton.cdiv(n, BLOCK),)
    for term in (x, y):
        add_into[grid](out, term, n, BLOCK=BLOCK, num_warps=8)
    return out
