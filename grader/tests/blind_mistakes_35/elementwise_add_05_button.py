# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) in elementwise_add_kernel, `tl.load(y_ptr + lane)` has no mask, so the last program reads past the end of y where n is no multiple of BLOCK (1024); the stored numbers are right all the same; should have mask=lane < left; (2) in elementwise_add, `return` without a value for n = 0 gives None instead of out; shows for n = 0 only; should be return out (a new empty tensor where none is given)
"""Add two vectors: every program moves the pointers to its own block first."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    x_ptr += start
    y_ptr += start
    out_ptr += start

    lane = tl.arange(0, BLOCK)
    left = n - start
    x = tl.load(x_ptr + lane, mask=lane < left)
    y = tl.load(y_ptr + lane)
    tl.store(out_ptr + lane, x + y, mask=lane < left)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Sum of two contiguous vectors of the same length and dtype."""
    n = x.shape[0]
    if n == 0:
        return
    if out is None:
        out = torch.empty_like(x)
    elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
