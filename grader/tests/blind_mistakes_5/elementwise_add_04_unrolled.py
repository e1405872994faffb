# labs/lab1_elementwise_add/elementwise_add.py | corner | The grid is `max(1, blocks // BLOCKS_PER_PROGRAM)`: it rounds down, so the last group of fewer than 4 blocks has no program and stays unwritten. It must be `cdiv`.
"""Vector addition; a program adds several blocks, one behind the other."""

import torch
import triton
import triton.language as tl

BLOCK = 512
BLOCKS_PER_PROGRAM = 4


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, TIMES: tl.constexpr):
    """Program k adds the TIMES blocks from k * TIMES on."""
    lane = tl.arange(0, BLOCK)
    begin = tl.program_id(axis=0).to(tl.int64) * (BLOCK * TIMES)
    for i in tl.static_range(TIMES):
        offs = begin + i * BLOCK + lane
        mask = offs < n
        s = tl.load(x_ptr + offs, mask=mask) + tl.load(y_ptr + offs, mask=mask)
        tl.store(out_ptr + offs, s, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    blocks = triton.cdiv(n, BLOCK)
    programs = max(1, blocks // BLOCKS_PER_PROGRAM)
    elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, TIMES=BLOCKS_PER_PROGRAM)
    return out
