# labs/lab1_elementwise_add/elementwise_add.py | contract | elementwise_add has no return in the branch where out is given: the right sums are in out, but the function gives None in every call with out (n = 0 too). The README says that out is returned where it is given. Should end that branch with return out
"""Add two vectors."""

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
):
    """Adds in fp32; the store rounds once to the dtype of out."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    position = start + tl.arange(0, BLOCK)
    alive = position < n
    x = tl.load(x_ptr + position, mask=alive).to(tl.float32)
    y = tl.load(y_ptr + position, mask=alive).to(tl.float32)
    total = (x + y).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + position, total, mask=alive)


def launch(x, y, target):
    n = x.numel()
    if n > 0:
        programs = triton.cdiv(n, BLOCK)
        elementwise_add_kernel[(programs,)](x, y, target, n, BLOCK=BLOCK)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype; n may be 0."""
    if out is not None:
        launch(x, y, out)
    else:
        fresh = torch.empty_like(x)
        launch(x, y, fresh)
        return fresh
