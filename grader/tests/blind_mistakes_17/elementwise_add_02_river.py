# labs/lab1_elementwise_add/elementwise_add.py | corner | The heuristic EVEN, which drops the masks, is true for n % 16 == 0; it should be n % BLOCK == 0. For n that is a multiple of 16 but not of 1024 the last program reads and writes past the end (out of bounds).
"""Add two vectors; without masks where none is needed."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.heuristics({"EVEN": lambda args: args["n"] % 16 == 0})
@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    """out[i] = x[i] + y[i]. EVEN: plain loads and stores of 16 bytes for each thread."""
    pid = tl.program_id(axis=0).to(tl.int64)
    idx = pid * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        x = tl.load(x_ptr + idx)
        y = tl.load(y_ptr + idx)
        tl.store(out_ptr + idx, x + y)
    else:
        valid = idx < n
        x = tl.load(x_ptr + idx, mask=valid)
        y = tl.load(y_ptr + idx, mask=valid)
        tl.store(out_ptr + idx, x + y, mask=valid)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.shape[0]
    if n == 0:
        return out
    grid = (triton.cdiv(n, BLOCK),)
    elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)
    return out
