# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) the function returns before the tail launch when there is no whole block, so for 0 < n < 1024 nothing is written; it must skip only the bulk launch; (2) the sum starts from zeros, 0.0 + -0.0 + -0.0 is 0.0 where it must be -0.0: add x and y directly; shows where both are -0.0
"""Add two vectors with two kernels: whole blocks need no mask, and the rest is one masked program."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def sum_of(x, y):
    """The sum of the operands, in their own dtype."""
    total = tl.zeros_like(x)
    total += x
    total += y
    return total


@triton.jit
def bulk_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    """Program k adds the whole block k."""
    at = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, sum_of(tl.load(x_ptr + at), tl.load(y_ptr + at)))


@triton.jit
def rest_kernel(x_ptr, y_ptr, out_ptr, start, n, BLOCK: tl.constexpr):
    """One program for the elements from start to n, fewer than BLOCK."""
    at = start + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    y = tl.load(y_ptr + at, mask=mask, other=0.0)
    tl.store(out_ptr + at, sum_of(x, y), mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    whole, rest = divmod(n, BLOCK)
    # an empty grid is refused by CUDA
    if whole == 0:
        return out
    bulk_kernel[(whole,)](x, y, out, BLOCK=BLOCK)
    if rest > 0:
        rest_kernel[(1,)](x, y, out, whole * BLOCK, n, BLOCK=BLOCK)
    return out
