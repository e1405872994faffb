# labs/lab1_elementwise_add/elementwise_add.py | right | right
"""Add two vectors: whole blocks without a mask in one launch, what is left of them in another."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    first,  # the element at which program 0 begins
    n,
    BLOCK: tl.constexpr,
    PARTIAL: tl.constexpr,
):
    i = first + tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if PARTIAL:
        inside = i < n
        total = tl.load(x_ptr + i, mask=inside) + tl.load(y_ptr + i, mask=inside)
        tl.store(out_ptr + i, total, mask=inside)
    else:
        tl.store(out_ptr + i, tl.load(x_ptr + i) + tl.load(y_ptr + i))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y, into `out` where it is given."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    whole, rest = divmod(n, BLOCK)
    if whole:
        elementwise_add_kernel[(whole,)](x, y, out, 0, n, BLOCK=BLOCK, PARTIAL=False)
    if rest:
        elementwise_add_kernel[(1,)](x, y, out, whole * BLOCK, n, BLOCK=BLOCK, PARTIAL=True)
    return out
