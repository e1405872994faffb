# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | destination compares the shapes by identity (`out.shape is x.shape`); each access makes a new object, so this is never true, and the sums go to a new tensor, which is returned, while the given out stays unwritten; shows in every case that passes out (also n = 0, where another tensor than out is returned), not where out is None; it should be `out.shape == x.shape`, or simply out wherever it is given
"""Lab 1, elementwise add."""

from typing import Optional

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def block_of(pid, n, BLOCK: tl.constexpr):
    """Offsets of block `pid`, and which of them are below n."""
    offs = pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    return offs, offs < n


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs, mask = block_of(tl.program_id(axis=0), n, BLOCK)
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


def destination(x: torch.Tensor, out: Optional[torch.Tensor]) -> torch.Tensor:
    """The tensor that takes the sums: one like x."""
    if out is not None and out.dtype is x.dtype and out.shape is x.shape:
        return out
    return torch.empty_like(x)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """x + y, elementwise, for two contiguous vectors of one dtype."""
    assert x.shape == y.shape, f"x has {x.numel()} elements, y has {y.numel()}"
    target = destination(x, out)
    n = target.numel()
    if n != 0:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, target, n, BLOCK=BLOCK)
    return target
