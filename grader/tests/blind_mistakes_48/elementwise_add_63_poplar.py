# labs/lab1_elementwise_add/elementwise_add.py | corner | In `elementwise_add_kernel`, `total = tl.zeros((BLOCK,), dtype=tl.float32)` starts the sum from +0.0, so that -0.0 + -0.0 gives 0.0; the total should start from x itself (or from -0.0). Shows only where both elements are -0.0, in all dtypes.
"""Add two vectors: a running total for each element, to which one vector after the other is added."""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def plus(total, ptr, offs, exists):
    """The total and the elements of one more vector, in fp32: each of our dtypes fits into it."""
    values = tl.load(ptr + offs, mask=exists, eviction_policy="evict_first")
    return total + values.to(tl.float32)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    offs = start + tl.arange(0, BLOCK)
    exists = offs < n

    total = tl.zeros((BLOCK,), dtype=tl.float32)
    total = plus(total, x_ptr, offs, exists)
    total = plus(total, y_ptr, offs, exists)

    # rounded once, to the dtype of the result
    tl.store(out_ptr + offs, total.to(out_ptr.dtype.element_ty), mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    grid = (triton.cdiv(n, BLOCK),)
    elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK, num_warps=8)
    return out
