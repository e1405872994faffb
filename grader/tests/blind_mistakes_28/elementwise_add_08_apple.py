# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | elementwise_add_kernel takes its pointers as (out_ptr, x_ptr, y_ptr), but elementwise_add launches it with (x, y, out, n). So the kernel adds y and what lies in out, and stores that into the input x; out is never written. In every case with n > 0. The launch should pass (out, x, y, n)
"""Add two vectors: destination first, as in assembly."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def own_block(n, BLOCK: tl.constexpr):
    """Offsets of this program, and which of them exist."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offs = start + tl.arange(0, BLOCK)
    return offs, offs < n


@triton.jit
def elementwise_add_kernel(out_ptr, x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs, exists = own_block(n, BLOCK)
    left = tl.load(x_ptr + offs, mask=exists)
    right = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, left + right, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
