# labs/lab1_elementwise_add/elementwise_add.py | corner | elementwise_add: rest = cdiv(n, NARROW) % (WIDE // NARROW) is 0 in place of 4 when n % 1024 is 769 to 1023, so the remainder kernel is not launched and the last n % 1024 elements stay unwritten; it should be cdiv(n - whole * WIDE, NARROW).
"""Vector addition in two launches.

All whole blocks are added without any mask. What is left behind the last whole block, less than one block, is added
by a second kernel with narrower blocks and a mask.
"""

import torch
import triton
import triton.language as tl

WIDE = 1024  # elements of a program of the first kernel
NARROW = 256  # elements of a program of the second kernel


@triton.jit
def add_whole_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    """One whole block; every lane exists."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at) + tl.load(y_ptr + at))


@triton.jit
def add_rest_kernel(x_ptr, y_ptr, out_ptr, first, n, BLOCK: tl.constexpr):
    """One block of the elements first, first + 1, ..., n - 1."""
    at = first + tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = at < n
    a = tl.load(x_ptr + at, mask=exists)
    b = tl.load(y_ptr + at, mask=exists)
    tl.store(out_ptr + at, a + b, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y, in `out` if there is one, else in a new tensor like x. n = 0 launches nothing."""
    target = torch.empty_like(x) if out is None else out
    n = x.numel()

    whole = n // WIDE
    if whole:
        add_whole_kernel[(whole,)](x, y, target, BLOCK=WIDE)

    rest = triton.cdiv(n, NARROW) % (WIDE // NARROW)  # narrow blocks behind the last wide one
    if rest:
        add_rest_kernel[(rest,)](x, y, target, whole * WIDE, n, BLOCK=NARROW)

    return target
