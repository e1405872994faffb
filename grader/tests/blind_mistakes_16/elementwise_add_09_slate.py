# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In elementwise_add_kernel `tl.join(x_odd + y_odd, x_even + y_even)` puts the two sums of each pair together in the wrong order, so neighbouring elements of out are exchanged. It should be tl.join(x_even + y_even, x_odd + y_odd).
"""Add two vectors, pair by pair."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def halves(block, BLOCK: tl.constexpr):
    """Elements 0, 2, 4, ... of a block, and elements 1, 3, 5, ..."""
    return tl.split(tl.reshape(block, (BLOCK // 2, 2)))


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out = x + y; the even and the odd elements are added separately and put together again."""
    pid = tl.program_id(axis=0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    y = tl.load(y_ptr + offs, mask=mask, other=0.0)
    x_even, x_odd = halves(x, BLOCK)
    y_even, y_odd = halves(y, BLOCK)
    pairs = tl.join(x_odd + y_odd, x_even + y_even)
    tl.store(out_ptr + offs, tl.reshape(pairs, (BLOCK,)), mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
