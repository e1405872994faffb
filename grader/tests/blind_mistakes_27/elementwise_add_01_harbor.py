# labs/lab1_elementwise_add/elementwise_add.py | corner | window_width rounds n up, min(WIDEST, triton.next_power_of_2(n)): for every n below 1024 that is no power of two (7, 48, 127, 129, 1009, any dtype) the only window is wider than the vector, so that `n - BLOCK` in elementwise_add_kernel is negative and the program reads and writes BLOCK - n elements in front of the beginning of x, y and out (elements 0 to n - 1 themselves are right); powers of two and all n from 1024 on are right. It should be the largest power of two that is not above n: min(WIDEST, 1 << (n.bit_length() - 1))
"""Sum of two vectors in windows that are always full."""

import torch
import triton
import triton.language as tl

WIDEST = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i] for one window of BLOCK elements.

    The last window is moved back until it ends at n. It shares some elements with the one before it, and both
    store the same sums there, so that no lane needs a mask.
    """
    first = tl.program_id(axis=0).to(tl.int64) * BLOCK
    first = tl.minimum(first, n - BLOCK)
    window = first + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + window)
    y = tl.load(y_ptr + window)
    tl.store(out_ptr + window, x + y)


def window_width(n: int) -> int:
    """Elements of one window, a power of two: 1024, less for short vectors."""
    return min(WIDEST, triton.next_power_of_2(n))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype; the sum goes to `out` where one is given."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    width = window_width(n)
    elementwise_add_kernel[(triton.cdiv(n, width),)](x, y, out, n, BLOCK=width)
    return out
