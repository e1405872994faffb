# labs/lab1_elementwise_add/elementwise_add.py | right | right
"""Add two vectors. A program owns a contiguous span of whole blocks, and goes through it from its start."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
PROGRAMS = 2048


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, span, BLOCK: tl.constexpr):
    begin = tl.program_id(0).to(tl.int64) * span
    lane = begin + tl.arange(0, BLOCK)
    for shift in range(0, span, BLOCK):
        i = lane + shift
        ok = i < n
        x = tl.load(x_ptr + i, mask=ok)
        y = tl.load(y_ptr + i, mask=ok)
        tl.store(out_ptr + i, y + x, mask=ok)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype; `out` takes the sum where it is given."""
    result = torch.empty_like(x) if out is None else out
    n = x.numel()
    if n == 0:
        return result
    blocks = triton.cdiv(n, BLOCK)
    span = triton.cdiv(blocks, PROGRAMS) * BLOCK
    # Spans are rounded up, so fewer programs than PROGRAMS may be enough.
    elementwise_add_kernel[(triton.cdiv(n, span),)](x, y, result, n, span, BLOCK=BLOCK)
    return result
