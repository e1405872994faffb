# labs/lab1_elementwise_add/elementwise_add.py | right | right
"""Add two vectors in up to two launches: the whole blocks, then what is left."""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def elementwise_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    done,  # elements that an earlier launch covers
    n,
    BLOCK: tl.constexpr,
    REST: tl.constexpr,
):
    offs = done + tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = None
    if REST:
        mask = offs < n
    both = tl.load(x_ptr + offs, mask=mask) + tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, both, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y; nothing is launched for empty vectors."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    blocks, rest = divmod(n, BLOCK)
    if blocks:
        elementwise_add_kernel[(blocks,)](x, y, out, 0, n, BLOCK=BLOCK, REST=False)
    if rest:
        elementwise_add_kernel[(1,)](x, y, out, blocks * BLOCK, n, BLOCK=BLOCK, REST=True)
    return out
