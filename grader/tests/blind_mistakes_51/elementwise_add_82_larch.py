# labs/lab1_elementwise_add/elementwise_add.py | right | Programs walk from the last tile to the first in a while loop with a 64-bit counter, in two-dimensional tiles of 4 x 256, at most 4096 programs, loads and stores with eviction_policy="evict_first".
"""Add two vectors from their end to their start, with programs that take several blocks each."""

import torch
import triton
import triton.language as tl

ROWS = 4
LANES = 256
MOST_PROGRAMS = 4096


@triton.jit
def fetch(ptr, offs, exists):
    """A tile that is read once: no need to keep it in the cache."""
    return tl.load(ptr + offs, mask=exists, eviction_policy="evict_first")


@triton.jit
def backwards_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    tiles,  # tiles of ROWS * LANES elements, the last one perhaps in part
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
):
    """Program pid owns the tiles tiles - 1 - pid, tiles - 1 - pid - programs, ..., down to 0 or above."""
    inner = tl.arange(0, ROWS)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    tile = tiles - 1 - tl.program_id(axis=0).to(tl.int64)
    while tile >= 0:
        offs = tile * (ROWS * LANES) + inner
        exists = offs < n
        total = fetch(x_ptr, offs, exists) + fetch(y_ptr, offs, exists)
        tl.store(out_ptr + offs, total, mask=exists, eviction_policy="evict_first")
        tile -= tl.num_programs(axis=0)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    tiles = triton.cdiv(x.numel(), ROWS * LANES)
    programs = min(tiles, MOST_PROGRAMS)
    if programs > 0:
        backwards_kernel[(programs,)](
            x, y, out, x.numel(), tiles, ROWS=ROWS, LANES=LANES, num_warps=4
        )
    return out
