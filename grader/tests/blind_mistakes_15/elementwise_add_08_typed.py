# labs/lab1_elementwise_add/elementwise_add.py | contract | Without out the host function takes x itself as the destination (destination = x if out is None), so the input x is overwritten and returned. It should be a new tensor, torch.empty_like(x).
"""Elementwise addition of two vectors of the same length and dtype."""

from typing import Optional

import torch
import triton
import triton.language as tl

NUM_WARPS: int = 8
BLOCK: int = 2048


@triton.jit
def vector_add(
    lhs_ptr,
    rhs_ptr,
    dst_ptr,
    n_elements,
    BLOCK: tl.constexpr,
):
    block_start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    # every program moves its own pointers to the beginning of its block
    lanes = tl.arange(0, BLOCK)
    valid = lanes < n_elements - block_start
    lhs = tl.load(lhs_ptr + block_start + lanes, mask=valid)
    rhs = tl.load(rhs_ptr + block_start + lanes, mask=valid)
    tl.store(dst_ptr + block_start + lanes, lhs + rhs, mask=valid)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """Return x + y; where `out` is given the sum is stored there."""
    if x.shape != y.shape or x.dtype != y.dtype:
        raise ValueError("x and y must be alike")
    destination = x if out is None else out
    n_elements = x.numel()
    if n_elements == 0:
        return destination
    grid = (triton.cdiv(n_elements, BLOCK),)
    vector_add[grid](x, y, destination, n_elements, BLOCK=BLOCK, num_warps=NUM_WARPS)
    return destination
