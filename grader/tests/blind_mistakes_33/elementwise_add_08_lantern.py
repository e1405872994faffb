# labs/lab1_elementwise_add/elementwise_add.py | contract | the loads in elementwise_add_kernel use the mask `offs < readable`, with readable = n rounded up to a multiple of 16 in elementwise_add, so up to 15 elements behind the end of x and y are read (out of bounds), although they are never stored and the sums are right; shows for every n that is no multiple of 16; the loads should have the mask of the store, offs < n
"""Add two vectors, with loads of 16 bytes for each thread at odd sizes, too."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
VECTOR = 16


@triton.jit
def elementwise_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    n,
    readable,  # a multiple of VECTOR, so that the mask of a load is the same for all lanes of a vector
    BLOCK: tl.constexpr,
):
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < readable)
    y = tl.load(y_ptr + offs, mask=offs < readable)
    tl.store(out_ptr + offs, x + y, mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    readable = triton.cdiv(n, VECTOR) * VECTOR
    programs = triton.cdiv(n, BLOCK)
    elementwise_add_kernel[(programs,)](x, y, out, n, readable, BLOCK=BLOCK)
    return out
