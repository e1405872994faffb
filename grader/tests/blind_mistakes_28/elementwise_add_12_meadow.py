# labs/lab1_elementwise_add/elementwise_add.py | corner | elementwise_add_kernel starts from total = tl.zeros(...) and adds x and y to it. 0.0 + -0.0 is 0.0, so where x and y are both -0.0 the result is 0.0 instead of -0.0. Only the sign of these zeros is wrong (the cases values=edges, all dtypes); all else is right. Should start from x itself
"""Add vectors by accumulation."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def accumulate(total, ptr, offs, exists):
    """One more operand, added in fp32."""
    block = tl.load(ptr + offs, mask=exists, other=0.0)
    return total + block.to(tl.float32)


@triton.jit
def elementwise_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
):
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = offs < n
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    total = accumulate(total, x_ptr, offs, exists)
    total = accumulate(total, y_ptr, offs, exists)
    tl.store(out_ptr + offs, total.to(out_ptr.dtype.element_ty), mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    assert x.shape == y.shape, "x and y have the same length"
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    grid = (triton.cdiv(n, BLOCK),)
    elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)
    return out
