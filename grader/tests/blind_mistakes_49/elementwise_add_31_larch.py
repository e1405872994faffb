# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In `elementwise_add_kernel`, `tl.reshape(tl.join(lower_sum, upper_sum), (WHOLE,))` interleaves the two halves, because `tl.join` makes a new last axis, (HALF, 2). It should be `tl.reshape(tl.trans(tl.join(lower_sum, upper_sum)), (WHOLE,))` (or two stores); it shows for every n > 1.
"""Add two vectors: two independent halves per program, one wide store."""

import torch
import triton
import triton.language as tl

HALF = 1024


@triton.jit
def sum_at(x_ptr, y_ptr, offs, n):
    """x + y at offs; lanes past the end are 0 and belong to nobody."""
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists, other=0.0)
    y = tl.load(y_ptr + offs, mask=exists, other=0.0)
    return x + y


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    HALF: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns the 2 * HALF elements from pid * 2 * HALF on.

    The four loads of the two halves do not depend on each other, so all of them are under way at once.
    """
    WHOLE: tl.constexpr = 2 * HALF
    start = tl.program_id(axis=0).to(tl.int64) * WHOLE

    # The lower and the upper half of what this program owns.
    lower = start + tl.arange(0, HALF)
    upper = lower + HALF
    lower_sum = sum_at(x_ptr, y_ptr, lower, n)
    upper_sum = sum_at(x_ptr, y_ptr, upper, n)

    # Put the two halves behind each other and store them as one block.
    both = tl.reshape(tl.join(lower_sum, upper_sum), (WHOLE,))
    offs = start + tl.arange(0, WHOLE)
    tl.store(out_ptr + offs, both, mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    elementwise_add_kernel[(triton.cdiv(n, 2 * HALF),)](x, y, out, n, HALF=HALF, num_warps=4)
    return out
