# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) In `elementwise_add_kernel`, `total = tl.zeros((TILE,), dtype=tl.float32)` starts the sum from +0.0, so -0.0 + -0.0 gives 0.0; it should start from x itself (load x, then add y). Shows where both inputs are -0.0 (values "edges"), in all dtypes. (2) In `split_work`, `tiles // programs` rounds down; it should be `triton.cdiv(tiles, programs)`. Shows where there are more than 1024 tiles and their number is no multiple of 1024, as n = 2^20 + 3: the last tile(s) stay unwritten; n up to 2^20 and n = 2^28 are covered.
"""Add two vectors: a fixed number of programs, each with one contiguous run of tiles."""

import torch
import triton
import triton.language as tl

TILE = 1024
MOST_PROGRAMS = 1024  # all of them fit on the GPU at once


@triton.jit
def accumulate(total, ptr, offs, exists):
    """Add one operand to the running total, in fp32."""
    return total + tl.load(ptr + offs, mask=exists).to(tl.float32)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    tiles_each,  # tiles of one program
    TILE: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns the tiles pid * tiles_each to (pid + 1) * tiles_each - 1."""
    run = tl.program_id(axis=0).to(tl.int64) * tiles_each * TILE
    lanes = tl.arange(0, TILE)

    for tile in range(tiles_each):
        offs = run + tile * TILE + lanes
        exists = offs < n
        total = tl.zeros((TILE,), dtype=tl.float32)
        total = accumulate(total, x_ptr, offs, exists)
        total = accumulate(total, y_ptr, offs, exists)
        # fp32 holds the sum of two 16-bit numbers well enough for one rounding here to be the exact one.
        tl.store(out_ptr + offs, total.to(out_ptr.dtype.element_ty), mask=exists)


def split_work(n: int):
    """How many programs there are, and how many tiles each of them has."""
    tiles = triton.cdiv(n, TILE)
    programs = min(tiles, MOST_PROGRAMS)
    return programs, tiles // programs


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    programs, tiles_each = split_work(n)
    elementwise_add_kernel[(programs,)](x, y, out, n, tiles_each, TILE=TILE, num_warps=4)
    return out
