# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) the new tensor is `torch.empty(n, device=x.device)`, which is fp32; must have the dtype of x: shows for fp16 and bf16 where no out is given. (2) `left >= lanes` lets lane `left` through, one element too many; must be `lanes < left`: reads and writes element n wherever n is no multiple of 1024.
"""Add two vectors: the pointers move to the block, and what is left of the vector decides which lanes exist."""

import torch
import triton
import triton.language as tl

WIDTH = 1024


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, WIDTH: tl.constexpr):
    begin = tl.program_id(0).to(tl.int64) * WIDTH
    x_ptr += begin
    y_ptr += begin
    out_ptr += begin
    left = n - begin  # elements from here to the end
    lanes = tl.arange(0, WIDTH)
    ok = left >= lanes
    tl.store(out_ptr + lanes, tl.load(x_ptr + lanes, mask=ok) + tl.load(y_ptr + lanes, mask=ok), mask=ok)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """The sum of two vectors, in `out` if there is one."""
    n = x.numel()
    if out is None:
        out = torch.empty(n, device=x.device)
    if n == 0:
        return out
    add_kernel[(triton.cdiv(n, WIDTH),)](x, y, out, n, WIDTH=WIDTH)
    return out
