# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) the load of y has no mask (`tl.load(y_ptr + offs)`); must be masked with offs < n. Shows for n that are no multiple of 1024: the last program reads past the end of y, though the stored numbers are right. (2) for n = 0 the function returns a new tensor before it looks at out (`return torch.empty_like(x)`); must return out where it is given. Shows for n = 0 with out.
"""Add two vectors: one program, one block of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    # Issue both loads before the addition, so that they are in flight together.
    y = tl.load(y_ptr + offs)
    x = tl.load(x_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    n = x.numel()
    if n == 0:  # CUDA refuses an empty grid
        return torch.empty_like(x)
    if out is None:
        out = torch.empty_like(x)
    elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
