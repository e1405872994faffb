# labs/lab1_elementwise_add/elementwise_add.py | corner | In `plus`, for fp16, `total = tl.minimum(tl.maximum(total, -65504.0), 65504.0)` keeps the sum in the finite range; it should be left out, as a sum that overflows, or that has inf on one side, is inf. It shows in fp16 only, where |x + y| is inf or rounds to it (values at the edges): 65504 instead of inf.
"""Add two vectors; the sum itself is a function of the dtype."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def plus(x, y):
    """x + y, rounded once; 16-bit numbers are added in fp32, which has room for their sum."""
    total = x.to(tl.float32) + y.to(tl.float32)
    if x.dtype == tl.float16:
        total = tl.minimum(tl.maximum(total, -65504.0), 65504.0)
    return total.to(x.dtype)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    first = tl.program_id(axis=0).to(tl.int64) * BLOCK
    x_ptr += first
    y_ptr += first
    out_ptr += first
    lane = tl.arange(0, BLOCK)
    exists = first + lane < n
    x = tl.load(x_ptr + lane, mask=exists)
    y = tl.load(y_ptr + lane, mask=exists)
    tl.store(out_ptr + lane, plus(x, y), mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
