# labs/lab1_elementwise_add/elementwise_add.py | error | In elementwise_add, `grid = (programs)` has no comma, so the grid is an int and no tuple: every launch (every n > 0) raises TypeError (object of type 'int' has no len()); n = 0 is right. It should be `grid = (programs,)`.
"""Add two vectors: one program, one block of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0).to(tl.int64)
    # int64, because of vectors with more than 2^31 elements
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    exists = offsets < n
    x = tl.load(x_ptr + offsets, mask=exists)
    y = tl.load(y_ptr + offsets, mask=exists)
    tl.store(out_ptr + offsets, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    programs = triton.cdiv(n, BLOCK)
    grid = (programs)
    elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)
    return out
