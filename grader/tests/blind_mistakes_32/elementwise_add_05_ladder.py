# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) elementwise_add passes size = n rounded up to a multiple of 16 to the kernel, and both masks compare with it: where n is no multiple of 16, up to 15 elements past the end are read and written (out of bounds); it should pass n. (2) In elementwise_add_kernel, y_hi is loaded from y_ptr + lo instead of y_ptr + hi: where n > 512, elements 512 to 1023 of each block of 1024 become x[i] + y[i - 512]; it should be y_ptr + hi.
"""Add two vectors: each program takes two blocks that lie next to each other."""

import torch
import triton
import triton.language as tl

BLOCK = 512


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, size, BLOCK: tl.constexpr):
    base = tl.program_id(axis=0).to(tl.int64) * (2 * BLOCK)
    lo = base + tl.arange(0, BLOCK)
    hi = lo + BLOCK
    keep_lo = lo < size
    keep_hi = hi < size

    # All four loads first, so that they are under way together.
    x_lo = tl.load(x_ptr + lo, mask=keep_lo)
    y_lo = tl.load(y_ptr + lo, mask=keep_lo)
    x_hi = tl.load(x_ptr + hi, mask=keep_hi)
    y_hi = tl.load(y_ptr + lo, mask=keep_hi)

    tl.store(out_ptr + lo, x_lo + y_lo, mask=keep_lo)
    tl.store(out_ptr + hi, x_hi + y_hi, mask=keep_hi)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n != 0:
        size = triton.cdiv(n, 16) * 16
        elementwise_add_kernel[(triton.cdiv(size, 2 * BLOCK),)](x, y, out, size, BLOCK=BLOCK)
    return out
