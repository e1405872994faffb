# labs/lab1_elementwise_add/elementwise_add.py | corner | In exact_add_kernel `(total + lost)` adds back the rounding error of two_sum; only `total` should be stored. For finite sums that changes no bit, but where the sum is infinite `lost` is NaN and so is the result, and -0.0 + -0.0 becomes 0.0 because `lost` is 0.0 there: values "edges" (inf, sums beyond the largest number, zeros) are wrong, all others are right.
"""Add two vectors to the last bit: what the addition rounds away is computed, too."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def two_sum(a, b):
    """The sum of a and b, and what was lost when it was rounded, after Knuth.

    Both together are a + b without any error; no order of a and b is asked for.
    """
    total = a + b
    b_part = total - a
    a_part = total - b_part
    return total, (a - a_part) + (b - b_part)


@triton.jit
def load_wide(ptr, offs, exists):
    """Elements in fp32, which holds every fp16 and bf16 number."""
    return tl.load(ptr + offs, mask=exists).to(tl.float32)


@triton.jit
def exact_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = offs < n
    total, lost = two_sum(load_wide(x_ptr, offs, exists), load_wide(y_ptr, offs, exists))
    tl.store(out_ptr + offs, (total + lost).to(out_ptr.dtype.element_ty), mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        exact_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
