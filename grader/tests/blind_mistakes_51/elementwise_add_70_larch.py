# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In add_halves_kernel `both = tl.reshape(tl.join(lower, upper), (2 * HALF,))` interleaves the two halves, because join makes a last axis of 2. It should be `tl.reshape(tl.trans(tl.join(lower, upper)), (2 * HALF,))`, one half behind the other. Shows for every n > 1.
"""Add two vectors: a program sums two neighbouring half blocks and stores them as one wide block."""

import torch
import triton
import triton.language as tl

HALF = 1024
WARPS = 8


@triton.jit
def sum_at(x_ptr, y_ptr, offs, n):
    """x + y at these offsets; lanes past the end are not read."""
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    return x + y


@triton.jit
def add_halves_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    HALF: tl.constexpr,
):
    """Program pid owns 2 * HALF elements: first half, second half, one store."""
    first = tl.program_id(axis=0).to(tl.int64) * (2 * HALF)
    lanes = tl.arange(0, HALF)

    # Four independent loads are in flight before the first sum is needed.
    lower = sum_at(x_ptr, y_ptr, first + lanes, n)
    upper = sum_at(x_ptr, y_ptr, first + HALF + lanes, n)

    # The two halves one behind the other: a single block of 2 * HALF sums.
    both = tl.reshape(tl.join(lower, upper), (2 * HALF,))
    offs = first + tl.arange(0, 2 * HALF)
    tl.store(out_ptr + offs, both, mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        grid = (triton.cdiv(n, 2 * HALF),)
        add_halves_kernel[grid](x, y, out, n, HALF=HALF, num_warps=WARPS)
    return out
