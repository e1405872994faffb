# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) In `elementwise_add`, `tiles = blocks // programs` rounds down; it should be `triton.cdiv(blocks, programs)`. With more than 512 blocks of 2048 that are no multiple of 512 (n = 2^20 + 3) the tail is unwritten. (2) `exact_sum` returns `total + error`: for inf, and for fp32 or bf16 sums that overflow, `error` is NaN and so is the result, and -0.0 + -0.0 becomes 0.0; it should return `total`. Shows at the values at the edges (n = 4099), in every dtype.
"""Add two vectors: a fixed number of programs, each with a chunk of neighbouring tiles."""

import torch
import triton
import triton.language as tl

BLOCK = 2048
PROGRAMS = 512
WARPS = 8


@triton.jit
def exact_sum(x, y):
    """x + y in fp32, with the error of the sum (Knuth's two-sum) added again."""
    total = x + y
    y_part = total - x
    x_part = total - y_part
    error = (x - x_part) + (y - y_part)
    return total + error


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    tiles,  # of each program
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns the tiles pid * tiles to (pid + 1) * tiles - 1."""
    start = tl.program_id(axis=0).to(tl.int64) * tiles * BLOCK
    lanes = tl.arange(0, BLOCK)
    for tile in range(tiles):
        offs = start + tile * BLOCK + lanes
        exists = offs < n
        x = tl.load(x_ptr + offs, mask=exists, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + offs, mask=exists, other=0.0).to(tl.float32)
        total = exact_sum(x, y)
        tl.store(out_ptr + offs, total.to(out_ptr.dtype.element_ty), mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        blocks = triton.cdiv(n, BLOCK)
        programs = min(blocks, PROGRAMS)
        tiles = blocks // programs
        elementwise_add_kernel[(programs,)](x, y, out, n, tiles, BLOCK=BLOCK, num_warps=WARPS)
    return out
