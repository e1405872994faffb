"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL from elementwise_add: C1 Python's sum of two views is torch's, and fill_ takes a tensor of no dimension as well"""

import torch
import triton
import triton.language as tl


@triton.jit
def last_kernel(x_ptr, y_ptr, out_ptr, n):
    tl.store(out_ptr + n - 1, tl.load(x_ptr + n - 1) + tl.load(y_ptr + n - 1))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    for place in range(n):
        out[place : place + 1].fill_(sum((x[place], y[place]), 0))
    if n:
        last_kernel[(1,)](x, y, out, n)
    return out
