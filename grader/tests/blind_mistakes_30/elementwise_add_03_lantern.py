# labs/lab1_elementwise_add/elementwise_add.py | right | right
"""Add two vectors; every program moves its pointers to its own block first."""

import torch
import triton
import triton.language as tl

WIDTH = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, WIDTH: tl.constexpr):
    """After the shift, lane 0 is the first element of the block, and `left` elements follow from there."""
    done = tl.program_id(0).to(tl.int64) * WIDTH
    left = n - done
    x_ptr += done
    y_ptr += done
    out_ptr += done

    lane = tl.arange(0, WIDTH)
    alive = lane < left
    tl.store(out_ptr + lane, tl.load(y_ptr + lane, mask=alive) + tl.load(x_ptr + lane, mask=alive), mask=alive)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y. The last program may find nothing left, which is no harm."""
    if out is None:
        out = torch.empty_like(x)
    n = x.shape[0]
    if n:
        elementwise_add_kernel[(n // WIDTH + 1,)](x, y, out, n, WIDTH=WIDTH)
    return out
