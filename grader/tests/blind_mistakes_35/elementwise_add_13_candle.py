# labs/lab1_elementwise_add/elementwise_add.py | corner | in elementwise_add_kernel, the sum starts from `tl.zeros(...)`, and 0.0 + -0.0 + -0.0 is 0.0: where x and y are both -0.0 the result is 0.0 instead of -0.0; shows only in elements with two negative zeros (values at the edges), in every dtype; should start from the block of x, that is store x + y and nothing added to it
"""Add two vectors: an accumulator for each program, to which the block of each operand is added."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def plus(acc, ptr, offs, n):
    return acc + tl.load(ptr + offs, mask=offs < n, other=0.0)


@triton.jit
def elementwise_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
):
    offs = tl.arange(0, BLOCK) + tl.program_id(axis=0).to(tl.int64) * BLOCK
    acc = tl.zeros((BLOCK,), dtype=out_ptr.dtype.element_ty)
    acc = plus(acc, x_ptr, offs, n)
    acc = plus(acc, y_ptr, offs, n)
    tl.store(out_ptr + offs, acc, mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Returns `out`, or a new tensor like x, with x + y in it."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    programs = triton.cdiv(n, BLOCK)
    if programs == 0:
        return out
    elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK)
    return out
