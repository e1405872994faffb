# labs/lab1_elementwise_add/elementwise_add.py | error | The last, partial block is computed on the host by `out[first:] = x[first:] + y[first:]`: an operator on tensors outside a kernel and a store into a slice, which LANGUAGE.md does not permit (POLICY); a kernel with a mask must do it.
"""x + y: whole blocks by one launch without masks, then the rest."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def whole_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    """A complete block: no mask at all."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs) + tl.load(y_ptr + offs))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    whole = n // BLOCK
    first = whole * BLOCK
    if n >= BLOCK:
        whole_kernel[(whole,)](x, y, out, BLOCK=BLOCK)
    if first < n:
        out[first:] = x[first:] + y[first:]
    return out
