# lab1/elementwise_add.py | contract | kernel: the loads use the mask offs < readable with readable = n rounded up to a multiple of 16, only the store uses offs < n, so up to 15 elements behind x and y are read; the numbers are right | "a masked lane neither reads nor writes" / "A load without a mask ... is an illegal read all the same"; every n that is no multiple of 16
"""Vector addition with wide accesses."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
VECTOR = 16


@triton.jit
def add_wide(x_ptr, y_ptr, out_ptr, n, readable, BLOCK: tl.constexpr, VECTOR: tl.constexpr):
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs = tl.max_contiguous(tl.multiple_of(offs, VECTOR), VECTOR)
    wide = offs < readable
    x = tl.load(x_ptr + offs, mask=wide)
    y = tl.load(y_ptr + offs, mask=wide)
    tl.store(out_ptr + offs, x + y, mask=offs < n)


def round_up(value: int, multiple: int) -> int:
    return triton.cdiv(value, multiple) * multiple


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        add_wide[(triton.cdiv(n, BLOCK),)](x, y, out, n, round_up(n, VECTOR), BLOCK=BLOCK, VECTOR=VECTOR)
    return out
