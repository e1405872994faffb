# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In two_sided_kernel the second store has `x_right + y_left`, should be `x_right + y_right`. The right half of the result is wrong for every n >= 2.
"""Add two vectors: each program takes a block of the left half and its partner in the right half."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def two_sided_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    half,  # elements of the left half; the right one has as many, or one less
    BLOCK: tl.constexpr,
):
    """Program pid owns block pid of the left half and block pid of the right half."""
    pid = tl.program_id(axis=0).to(tl.int64)
    left = pid * BLOCK + tl.arange(0, BLOCK)
    right = left + half
    in_left = left < half
    in_right = right < n

    # All loads first, so that they overlap.
    x_left = tl.load(x_ptr + left, mask=in_left)
    y_left = tl.load(y_ptr + left, mask=in_left)
    x_right = tl.load(x_ptr + right, mask=in_right)
    y_right = tl.load(y_ptr + right, mask=in_right)

    tl.store(out_ptr + left, x_left + y_left, mask=in_left)
    tl.store(out_ptr + right, x_right + y_left, mask=in_right)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        half = triton.cdiv(n, 2)
        two_sided_kernel[(triton.cdiv(half, BLOCK),)](x, y, out, n, half, BLOCK=BLOCK)
    return out
