# labs/lab1_elementwise_add/elementwise_add.py | corner | elementwise_add, host: the program of the remainder is launched only inside the branch of the whole blocks, so for 0 < n < BLOCK (2048) nothing is written; the two conditions must be independent
"""Vector addition in two launches."""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def add_full_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    i = start + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i) + tl.load(y_ptr + i))


@triton.jit
def add_tail_kernel(x_ptr, y_ptr, out_ptr, begin, n, BLOCK: tl.constexpr):
    i = tl.cast(begin, tl.int64) + tl.arange(0, BLOCK)
    alive = i < n
    s = tl.load(x_ptr + i, mask=alive) + tl.load(y_ptr + i, mask=alive)
    tl.store(out_ptr + i, s, mask=alive)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Add two vectors of the same dtype."""
    out = torch.empty_like(x) if out is None else out
    n = x.shape[0]
    blocks, rest = divmod(n, BLOCK)
    if blocks > 0:
        add_full_kernel[(blocks,)](x, y, out, BLOCK=BLOCK, num_warps=8)
        if rest > 0:
            add_tail_kernel[(1,)](x, y, out, blocks * BLOCK, n, BLOCK=BLOCK, num_warps=8)
    return out
