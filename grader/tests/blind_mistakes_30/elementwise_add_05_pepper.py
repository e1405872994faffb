# labs/lab1_elementwise_add/elementwise_add.py | corner | in elementwise_add_kernel the sum starts from tl.zeros and both sides are added to it, so -0.0 + -0.0 becomes 0.0 + -0.0 + -0.0 = 0.0; shows only where both elements are -0.0; should start from the loaded x and add y (x + y directly)
"""Add two vectors, with a sum kept in fp32 until it is stored."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def plus(total, ptr, offs, valid):
    """total plus the block behind ptr, in fp32."""
    return total + tl.load(ptr + offs, mask=valid).to(tl.float32)


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    block_start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    offs = block_start + tl.arange(0, BLOCK)
    valid = offs < n
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    total = plus(total, x_ptr, offs, valid)
    total = plus(total, y_ptr, offs, valid)
    tl.store(out_ptr + offs, total.to(out_ptr.dtype.element_ty), mask=valid)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y, into `out` where it is given."""
    result = torch.empty_like(x) if out is None else out
    n = result.numel()
    if n != 0:
        grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
        elementwise_add_kernel[grid](x, y, result, n, BLOCK=BLOCK)
    return result
