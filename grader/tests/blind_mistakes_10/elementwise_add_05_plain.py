# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) the grid is `max(n // BLOCK, 1)`; must be triton.cdiv(n, BLOCK): the last, partial block is unwritten where n > 1024 is no multiple of 1024. (2) the load of x has no mask; must have mask=mask: reads past the end of x wherever a launched block is partial, that is for n < 1024, n = 0 included.
"""Add two vectors: one program, one block of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    pid = tl.program_id(axis=0).to(tl.int64)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    grid = (max(n // BLOCK, 1),)
    elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)
    return out
