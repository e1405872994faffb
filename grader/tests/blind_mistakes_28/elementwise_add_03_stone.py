# labs/lab1_elementwise_add/elementwise_add.py | right | right: the last program slides back to the last full block, so that it overlaps with its neighbour and both store the same bits there, which the README permits
"""Add two vectors. The last block is moved to the left until it fits."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, last_start, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i] for BLOCK elements that begin at pid * BLOCK, or at last_start if that is less.

    Two programs may own an element near the end; they store the same number there.
    """
    wanted = tl.program_id(axis=0).to(tl.int64) * BLOCK
    start = tl.minimum(wanted, last_start)
    offs = start + tl.arange(0, BLOCK)
    # Only a vector shorter than one block has lanes without an element.
    exists = offs < n
    total = tl.load(x_ptr + offs, mask=exists)
    total += tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, total, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    programs = triton.cdiv(n, BLOCK)
    if programs:
        last_start = max(n - BLOCK, 0)
        elementwise_add_kernel[(programs,)](x, y, out, n, last_start, BLOCK=BLOCK)
    return out
