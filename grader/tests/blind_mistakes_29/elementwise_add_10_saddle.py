# labs/lab1_elementwise_add/elementwise_add.py | error | in elementwise_add_kernel, `start = tl.program_id(0) * BLOCK` is int32, and `start += stride` in the while loop makes it int64, as stride is int64: Triton does not compile a variable whose type changes in a loop; shows for every n > 0 wherever the kernel is compiled (the interpreter runs it and gives right numbers); should be `tl.program_id(0).to(tl.int64) * BLOCK`
"""Add two vectors with a loop over blocks, a grid apart from each other."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
MOST = 132 * 16


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    stride = tl.num_programs(0).to(tl.int64) * BLOCK
    lanes = tl.arange(0, BLOCK)
    while start < n:
        offs = start + lanes
        mask = offs < n
        a = tl.load(x_ptr + offs, mask=mask)
        b = tl.load(y_ptr + offs, mask=mask)
        tl.store(out_ptr + offs, a + b, mask=mask)
        start += stride


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for two contiguous vectors; at most MOST programs are launched."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    grid = (min(MOST, triton.cdiv(n, BLOCK)),)
    elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)
    return out
