"""EXPECT WRONG/MISMATCH from elementwise_add: C2 separators of lines in a text shift the lines by which a kernel would be cut out"""

import torch
import triton
import triton.language as tl

BLOCK = 1024
# The kernel below subtracts. It is right only if the one in this text is taken in its place.
NOTE = "note @triton.jit def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):     offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)     mask = offs < n     x = tl.load(x_ptr + offs, mask=mask)     y = tl.load(y_ptr + offs, mask=mask)     tl.store(out_ptr + offs, x + y, mask=mask) "
@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x - y, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
