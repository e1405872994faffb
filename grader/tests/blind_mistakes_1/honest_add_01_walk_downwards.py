# lab1/elementwise_add.py | honest | - | unusual: a fixed number of programs, each walking over its tiles from the last one down to the first in a while loop; the sum is made in fp32 and rounded once; stores through the stride of out
"""Add two vectors with a persistent grid."""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def add_downwards(src0, src1, dst, n, dst_step, tiles, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    tile = tiles - 1 - tl.program_id(axis=0)
    while tile >= 0:
        idx = tile.to(tl.int64) * BLOCK + lanes
        inside = idx < n
        a = tl.load(src0 + idx, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(src1 + idx, mask=inside, other=0.0).to(tl.float32)
        tl.store(dst + idx * dst_step, (a + b).to(dst.dtype.element_ty), mask=inside)
        tile -= tl.num_programs(axis=0)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    tiles = triton.cdiv(n, BLOCK)
    workers = 3
    if x.is_cuda:
        workers = 8 * torch.cuda.get_device_properties(x.device).multi_processor_count
    add_downwards[(min(tiles, workers),)](x, y, out, n, out.stride(0), tiles, BLOCK=BLOCK)
    return out
