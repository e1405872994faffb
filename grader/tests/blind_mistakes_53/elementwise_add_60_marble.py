# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In `elementwise_add_kernel`, `span_sum = tl.interleave(lower_sum, upper_sum)` alternates the elements of the two halves (l0, u0, l1, u1, ...), but the store expects them one behind the other; it should store each half at its own offsets (`lower`, `upper`), or use `tl.reshape(tl.permute(tl.join(lower_sum, upper_sum), (1, 0)), (SPAN,))`. Wrong for every n >= 2, in all dtypes (sums at the wrong places; in the last span also values of masked lanes); only n = 0 and n = 1 are right.
"""Add two vectors: a program adds the two halves of its span apart and stores the span at once."""

import torch
import triton
import triton.language as tl

HALF = 1024


@triton.jit
def sum_at(x_ptr, y_ptr, offs, n):
    """x + y at the given offsets, as far as they exist."""
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    return x + y


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    HALF: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns 2 * HALF neighbouring elements.

    The loads of the two halves do not depend on each other, so all four are in flight together.
    """
    SPAN: tl.constexpr = 2 * HALF
    first = tl.program_id(axis=0).to(tl.int64) * SPAN

    lower = first + tl.arange(0, HALF)
    upper = lower + HALF
    lower_sum = sum_at(x_ptr, y_ptr, lower, n)
    upper_sum = sum_at(x_ptr, y_ptr, upper, n)

    # Both halves as one block of SPAN elements, for a single store.
    span_sum = tl.interleave(lower_sum, upper_sum)
    offs = first + tl.arange(0, SPAN)
    tl.store(out_ptr + offs, span_sum, mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    programs = triton.cdiv(n, 2 * HALF)
    elementwise_add_kernel[(programs,)](x, y, out, n, HALF=HALF, num_warps=4)
    return out
