# lab1/elementwise_add.py | corner | kernel: the sum starts from total = zeros and adds x and y to it, and 0.0 + -0.0 is +0.0, so the sign of a negative zero is lost | "every bit must agree with PyTorch"; only elements where x and y are both -0.0 (the result is +0.0, other bits)
"""Add any number of vectors; here two."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def sum_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    total += tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    total += tl.load(y_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + offs, total.to(out_ptr.dtype.element_ty), mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n = x.numel()
    out = torch.empty_like(x) if out is None else out
    if n != 0:
        sum_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK, num_warps=4)
    return out
