# labs/lab1_elementwise_add/elementwise_add.py | contract | for n = 0 the function returns a new empty tensor, `return torch.empty_like(x)`, also where out is given; must return out ("It is returned where it is given"). Shows for n = 0 with out=.
"""Add two vectors, with the checks of the arguments in front."""

import torch
import triton
import triton.language as tl


@triton.jit
def _add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


def _block(n: int) -> int:
    """Short vectors take a short block."""
    return min(max(triton.next_power_of_2(n), 128), 1024)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype; n may be 0."""
    assert x.shape == y.shape and x.dtype == y.dtype, "x and y must be alike"
    n = x.numel()
    if n == 0:
        return torch.empty_like(x)
    if out is None:
        out = torch.empty_like(x)
    assert out.shape == x.shape, "out must have the shape of x"
    block = _block(n)
    _add[(triton.cdiv(n, block),)](x, y, out, n, BLOCK=block)
    return out
