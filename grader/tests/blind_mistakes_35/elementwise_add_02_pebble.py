# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | in elementwise_add_kernel, `tl.reshape(tl.join(low, high), (2 * HALF,))` interleaves the two halves (low[0], high[0], low[1], high[1], ...) instead of putting one behind the other, but it is stored at consecutive offsets; wrong for every n >= 2 (in a short vector every second element is 0.0), n = 1 and n = 0 are right; should store each half at its own offsets, or permute the join with tl.permute(..., (1, 0)) before the reshape
"""Add two vectors. A program sums two neighbouring halves and writes them with one wide store."""

import torch
import triton
import triton.language as tl

HALF = 512


@triton.jit
def sum_at(x_ptr, y_ptr, offs, n):
    inside = offs < n
    x = tl.load(x_ptr + offs, mask=inside, other=0.0)
    y = tl.load(y_ptr + offs, mask=inside, other=0.0)
    return x + y


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, HALF: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * (2 * HALF)
    lower = start + tl.arange(0, HALF)
    upper = lower + HALF

    low = sum_at(x_ptr, y_ptr, lower, n)
    high = sum_at(x_ptr, y_ptr, upper, n)
    whole = tl.reshape(tl.join(low, high), (2 * HALF,))

    offs = start + tl.arange(0, 2 * HALF)
    tl.store(out_ptr + offs, whole, mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        grid = (triton.cdiv(n, 2 * HALF),)
        elementwise_add_kernel[grid](x, y, out, n, HALF=HALF)
    return out
