# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | in elementwise_add_kernel the sum already begins with the block of x (sources[0]), and the loop over the sources begins at 0 again, so that the result is 2 * x + y for every size and dtype; the loop should be tl.static_range(1, 2)
"""Sum of two vectors, written as a sum over a tuple of sources."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    valid = offs < n
    sources = (x_ptr, y_ptr)
    total = tl.load(sources[0] + offs, mask=valid)
    for k in tl.static_range(2):
        total += tl.load(sources[k] + offs, mask=valid)
    tl.store(out_ptr + offs, total, mask=valid)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    blocks = triton.cdiv(n, BLOCK)
    if blocks == 0:
        return out
    elementwise_add_kernel[(blocks,)](x, y, out, n, BLOCK=BLOCK)
    return out
