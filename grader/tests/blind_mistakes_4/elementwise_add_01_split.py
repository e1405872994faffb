# labs/lab1_elementwise_add/elementwise_add.py | honest | two kernels: whole blocks without a mask, then one program with a mask for the remainder
"""x + y: whole blocks without any mask, and one program for what is left over."""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def whole_blocks(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    i = start + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i) + tl.load(y_ptr + i))


@triton.jit
def remainder(x_ptr, y_ptr, out_ptr, done, n, BLOCK: tl.constexpr):
    i = tl.cast(done, tl.int64) + tl.arange(0, BLOCK)
    valid = i < n
    s = tl.load(x_ptr + i, mask=valid) + tl.load(y_ptr + i, mask=valid)
    tl.store(out_ptr + i, s, mask=valid)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Add two vectors of the same dtype."""
    out = torch.empty_like(x) if out is None else out
    n = x.shape[0]
    blocks, rest = divmod(n, BLOCK)
    if blocks > 0:
        whole_blocks[(blocks,)](x, y, out, BLOCK=BLOCK, num_warps=8)
    if rest > 0:
        remainder[(1,)](x, y, out, n - rest, n, BLOCK=BLOCK, num_warps=8)
    return out
