# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | The second store adds y0 to x1; it must be x1 + y1 (every n above 256).
"""Add two vectors. Every program handles two pieces, so that four loads are in flight at the same time."""

import torch
import triton
import triton.language as tl

HALF = 256


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, HALF: tl.constexpr):
    """Program pid owns elements 2 * pid * HALF to 2 * (pid + 1) * HALF - 1."""
    begin = tl.program_id(0).to(tl.int64) * 2 * HALF
    first = begin + tl.arange(0, HALF)
    second = first + HALF
    # all loads come first, the hardware can overlap them
    x0 = tl.load(x_ptr + first, mask=first < n)
    x1 = tl.load(x_ptr + second, mask=second < n)
    y0 = tl.load(y_ptr + first, mask=first < n)
    y1 = tl.load(y_ptr + second, mask=second < n)
    # then both stores
    tl.store(out_ptr + first, x0 + y0, mask=first < n)
    tl.store(out_ptr + second, x1 + y0, mask=second < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y, into `out` where one is given."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out  # an empty grid cannot be launched
    elementwise_add_kernel[(triton.cdiv(n, 2 * HALF),)](x, y, out, n, HALF=HALF)
    return out
