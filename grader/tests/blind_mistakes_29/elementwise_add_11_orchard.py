# labs/lab1_elementwise_add/elementwise_add.py | corner | in elementwise_add_kernel, `start = tl.minimum(pid * BLOCK, n - BLOCK)` is negative for 0 < n < BLOCK = 512 (1, 7, 48, 127, 128, 129, 256), and there is no mask: the program reads in front of x and y and writes in front of out, although out itself gets the right numbers; right for n >= 512; should mask the lanes with offs >= 0 (or start at max(0, n - BLOCK) with the mask offs < n)
"""Add two vectors; the last block is moved back until it ends where the vectors end."""

import torch
import triton
import triton.language as tl

BLOCK = 512


@triton.jit
def elementwise_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
):
    """Blocks may overlap: where two of them do, both store the same sums."""
    pid = tl.program_id(axis=0).to(tl.int64)
    start = tl.minimum(pid * BLOCK, n - BLOCK)
    offs = start + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    y = tl.load(y_ptr + offs)
    tl.store(out_ptr + offs, x + y)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    blocks = triton.cdiv(n, BLOCK)
    if blocks > 0:
        elementwise_add_kernel[(blocks,)](x, y, out, n, BLOCK=BLOCK)
    return out
