# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) in_right = left < n is the mask of the left half; it must be right < n, so the right half reads and writes past the end if n ends inside a left half, or inside a right one. (2) sum_of starts from 0.0 and adds x: the sum of -0.0 and -0.0 becomes 0.0, one bit off; the sum must be x + y only.
"""Vector addition. A program owns two neighbouring halves, left and right."""

import torch
import triton
import triton.language as tl

HALF = 512


@triton.jit
def fetch(ptr, where, inside):
    return tl.load(ptr + where, mask=inside, other=0.0)


@triton.jit
def sum_of(x_ptr, y_ptr, where, inside):
    total = 0.0
    total += fetch(x_ptr, where, inside)
    total += fetch(y_ptr, where, inside)
    return total


@triton.jit
def halves_kernel(x_ptr, y_ptr, out_ptr, n, HALF: tl.constexpr):
    left = tl.program_id(0).to(tl.int64) * 2 * HALF + tl.arange(0, HALF)
    right = left + HALF
    in_left = left < n
    in_right = left < n
    tl.store(out_ptr + left, sum_of(x_ptr, y_ptr, left, in_left), mask=in_left)
    tl.store(out_ptr + right, sum_of(x_ptr, y_ptr, right, in_right), mask=in_right)


def elementwise_add(x, y, *, out=None):
    """x + y, written to out."""
    result = torch.empty_like(x) if out is None else out
    n = x.shape[0]
    if n:
        halves_kernel[(triton.cdiv(n, 2 * HALF),)](x, y, result, n, HALF=HALF)
    return result
