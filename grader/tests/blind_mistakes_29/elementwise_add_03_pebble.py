# labs/lab1_elementwise_add/elementwise_add.py | corner | in elementwise_add, `whole = n % 16 == 0` selects the path without masks, which is only right where n is a multiple of BLOCK; for n that is a multiple of 16 but not of 1024 (48, 128, 256, 512, 1536) the last program reads and writes past the end of x, y and out; should be `n % BLOCK == 0`
"""Add two vectors, without masks where none is needed."""

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
    WHOLE: tl.constexpr,
):
    pid = tl.program_id(axis=0).to(tl.int64)
    idx = pid * BLOCK + tl.arange(0, BLOCK)
    xs = x_ptr + idx
    ys = y_ptr + idx
    outs = out_ptr + idx
    if WHOLE:
        tl.store(outs, tl.load(xs) + tl.load(ys))
    else:
        ok = idx < n
        tl.store(outs, tl.load(xs, mask=ok) + tl.load(ys, mask=ok), mask=ok)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous vectors of one dtype."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        whole = n % 16 == 0
        grid = (triton.cdiv(n, BLOCK),)
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK, WHOLE=whole)
    return out
