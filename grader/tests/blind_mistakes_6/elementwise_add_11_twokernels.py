# labs/lab1_elementwise_add/elementwise_add.py | honest | Right: full blocks without a mask in one kernel, the remaining elements in a second one.
"""Vector addition; full blocks go to a kernel without masks."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def full_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    """No mask: every element of every block exists."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs) + tl.load(y_ptr + offs))


@triton.jit
def rest_kernel(x_ptr, y_ptr, out_ptr, start, n, BLOCK: tl.constexpr):
    """The elements from start to n - 1, fewer than BLOCK."""
    offs = start + tl.arange(0, BLOCK).to(tl.int64)
    rest = offs < n
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=rest) + tl.load(y_ptr + offs, mask=rest), mask=rest)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    full = n // BLOCK  # blocks that are complete
    if full > 0:
        full_kernel[(full,)](x, y, out, BLOCK=BLOCK)
    done = full * BLOCK
    if done < n:
        rest_kernel[(1,)](x, y, out, done, n, BLOCK=BLOCK)
    return out
