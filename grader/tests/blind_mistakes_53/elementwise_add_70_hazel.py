# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In `elementwise_add_kernel`, `pairs = tl.trans(tl.join(sum_even, sum_odd))` should be `tl.join(sum_even, sum_odd)` without `tl.trans`: `tl.join` puts the new axis last, so (HALF, 2) flattens to neighbours already, while the transposed (2, HALF) stores all even sums first and then the odd ones. The sums land at wrong places for every n > 1 (only n = 0 and 1 are right).
"""Add two vectors, two neighbouring elements in each lane."""

import torch
import triton
import triton.language as tl

HALF = 1024


@triton.jit
def halves(ptr, offs, exists, HALF: tl.constexpr):
    """The elements with an even and those with an odd place in the block, (HALF,) each."""
    block = tl.load(ptr + offs, mask=exists)
    even, odd = tl.split(tl.reshape(block, (HALF, 2)))
    return even, odd


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    HALF: tl.constexpr,
):
    """Program pid owns 2 * HALF elements, as HALF pairs of neighbours."""
    start = tl.program_id(axis=0).to(tl.int64) * (2 * HALF)
    offs = start + tl.arange(0, 2 * HALF)
    exists = offs < n

    x_even, x_odd = halves(x_ptr, offs, exists, HALF)
    y_even, y_odd = halves(y_ptr, offs, exists, HALF)
    sum_even = x_even + y_even
    sum_odd = x_odd + y_odd

    # One row again.
    pairs = tl.trans(tl.join(sum_even, sum_odd))
    sums = tl.reshape(pairs, (2 * HALF,))
    tl.store(out_ptr + offs, sums, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        grid = (triton.cdiv(n, 2 * HALF),)
        elementwise_add_kernel[grid](x, y, out, n, HALF=HALF)
    return out
