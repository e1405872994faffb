# labs/lab1_elementwise_add/elementwise_add.py | right | at most 1024 programs; each walks over the blocks from the end of the vector to its beginning in a while loop, num_programs blocks at a time, with int64 block numbers; loads of the 16-bit dtypes are added in fp32, which rounds the same.
"""x + y with a bounded number of programs that walk over the blocks from the last one to the first."""

import torch
import triton
import triton.language as tl

BLOCK = 2048
MOST_PROGRAMS = 1024


@triton.jit
def load_fp32(ptr, offs, mask):
    return tl.load(ptr + offs, mask=mask).to(tl.float32)


@triton.jit
def walk(x_ptr, y_ptr, out_ptr, n, blocks, BLOCK: tl.constexpr):
    block = blocks - 1 - tl.program_id(0).to(tl.int64)
    while block >= 0:
        offs = block * BLOCK + tl.arange(0, BLOCK)
        mask = offs < n
        total = load_fp32(x_ptr, offs, mask) + load_fp32(y_ptr, offs, mask)
        tl.store(out_ptr + offs, total.to(out_ptr.dtype.element_ty), mask=mask)
        block -= tl.num_programs(0)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype; to `out`, if there is one."""
    target = out if out is not None else torch.empty_like(x)
    n = x.numel()
    blocks = triton.cdiv(n, BLOCK)
    if blocks > 0:
        walk[(min(blocks, MOST_PROGRAMS),)](x, y, target, n, blocks, BLOCK=BLOCK, num_warps=8)
    return target
