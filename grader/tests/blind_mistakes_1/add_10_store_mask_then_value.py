# lab1/elementwise_add.py | error | kernel: tl.store(dst, keep, total): value and mask are exchanged, the sum is handed over as the mask and the mask as the value | "store the sum where exists"; every n > 0
"""Add two vectors on a grid with two axes."""

import torch
import triton
import triton.language as tl


@triton.jit
def add2d(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    keep = offs < n
    total = tl.load(x_ptr + offs, keep, 0.0) + tl.load(y_ptr + offs, keep, 0.0)
    dst = out_ptr + offs
    tl.store(dst, keep, total)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    blocks = triton.cdiv(n, 1024)
    across = min(blocks, 32768)
    add2d[(across, triton.cdiv(blocks, across))](x, y, out, n, BLOCK=1024)
    return out
