# labs/lab1_elementwise_add/elementwise_add.py | corner | elementwise_add skips the masks (EVEN) where n is a multiple of 16, but only a multiple of BLOCK has no partial block; for n that is a multiple of 16 and not of 1024 (48, 256, 512, 1536) the last block reads behind x and y and writes behind out; should be EVEN = n % BLOCK == 0
"""Add two vectors, without masks where none are needed."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    xs = x_ptr + offs
    ys = y_ptr + offs
    outs = out_ptr + offs
    if EVEN:
        tl.store(outs, tl.load(xs) + tl.load(ys))
    else:
        mask = offs < n
        tl.store(outs, tl.load(xs, mask=mask) + tl.load(ys, mask=mask), mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    assert x.shape == y.shape and x.dtype == y.dtype
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    even = n % 16 == 0
    elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK, EVEN=even)
    return out
