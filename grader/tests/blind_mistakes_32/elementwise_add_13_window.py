# labs/lab1_elementwise_add/elementwise_add.py | corner | elementwise_add_kernel clamps the sum to [-LIMIT, LIMIT], with LIMIT = torch.finfo(x.dtype).max: where an input is inf or -inf, or where the sum overflows the dtype, the result is the largest finite number instead of inf or -inf. Shows only for infinite or overflowing sums (values=edges), in fp32, fp16 and bf16. The tl.minimum / tl.maximum line should go: the sum is stored as it is.
"""Add two vectors: the sum is taken in fp32 and rounded once to the dtype of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, LIMIT: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    total = tl.minimum(tl.maximum(x + y, -LIMIT), LIMIT)
    tl.store(out_ptr + offs, total.to(out_ptr.dtype.element_ty), mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        grid = (triton.cdiv(n, BLOCK),)
        elementwise_add_kernel[grid](x, y, out, n, LIMIT=torch.finfo(x.dtype).max, BLOCK=BLOCK)
    return out
