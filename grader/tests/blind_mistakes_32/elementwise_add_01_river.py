# labs/lab1_elementwise_add/elementwise_add.py | corner | In elementwise_add_kernel the accumulator starts as tl.zeros(...) and x and y are added to it (0.0 + x + y), so where x and y are both -0.0 the result is +0.0 instead of -0.0; every other pair of values is right in every dtype and size. Shows only in inputs where two negative zeros meet (values=edges). It should be x + y, with nothing added to it, e.g. start from the loaded x.
"""Add two vectors: an fp32 accumulator takes one operand after the other."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def _accumulate(acc, src_ptr, offs, live):
    return acc + tl.load(src_ptr + offs, mask=live, other=0.0).to(tl.float32)


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    live = offs < n

    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    acc = _accumulate(acc, x_ptr, offs, live)
    acc = _accumulate(acc, y_ptr, offs, live)
    tl.store(out_ptr + offs, acc.to(out_ptr.dtype.element_ty), mask=live)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
