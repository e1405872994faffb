# labs/lab1_elementwise_add/elementwise_add.py | contract | In add_pair_kernel, the second load of x, `tl.load(x_ptr + right, mask=left_ok)`, has the mask of the left half: it reads up to HALF elements behind the end of x wherever n is no multiple of 2 * HALF (1024). The values are right, because the store of the right half has its own mask; but a lane past the end must not read. It should be mask=right_ok.
"""Elementwise add; a program has two halves of HALF elements, so that four loads are under way at once."""

import torch
import triton
import triton.language as tl

HALF = 512


@triton.jit
def add_pair_kernel(x_ptr, y_ptr, out_ptr, n, HALF: tl.constexpr):
    origin = tl.program_id(0).to(tl.int64) * (2 * HALF)
    left = origin + tl.arange(0, HALF)
    right = left + HALF
    left_ok = left < n
    right_ok = right < n

    x_left = tl.load(x_ptr + left, mask=left_ok)
    x_right = tl.load(x_ptr + right, mask=left_ok)
    y_left = tl.load(y_ptr + left, mask=left_ok)
    y_right = tl.load(y_ptr + right, mask=right_ok)

    tl.store(out_ptr + left, x_left + y_left, mask=left_ok)
    tl.store(out_ptr + right, x_right + y_right, mask=right_ok)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Add two contiguous vectors of one dtype; into `out`, if there is one."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()

    grid = lambda meta: (triton.cdiv(n, 2 * meta["HALF"]),)
    if n != 0:
        add_pair_kernel[grid](x, y, out, n, HALF=HALF)
    return out
