# labs/lab1_elementwise_add/elementwise_add.py | error | The last, partial block is added by host code, out[done:] = x[done:] + y[done:]: the numbers are right, but tensor arithmetic outside a kernel is not permitted (POLICY). It must be done by a kernel with a mask.
"""Vector addition by full blocks, without masks."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def full_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    """No mask: every element of every block exists."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs) + tl.load(y_ptr + offs))


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
        out[done:] = x[done:] + y[done:]
    return out
