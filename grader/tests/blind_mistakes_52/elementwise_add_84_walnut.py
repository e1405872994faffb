# labs/lab1_elementwise_add/elementwise_add.py | error | In `block_of`, `min(WIDEST, triton.cdiv(n, WARP) * WARP)` rounds up to a multiple of 32, which need not be a power of two; it should be `min(WIDEST, triton.next_power_of_2(n))`. `tl.arange(0, BLOCK)` raises where the multiple is none, as 160 for n = 129 or 96 for n = 65; n = 1, 7, 48, 127, 128, 1009 and everything above 992 are right.
"""Add two vectors: two blocks in a program, and narrower blocks where the vectors are short."""

import torch
import triton
import triton.language as tl

WIDEST = 1024
WARP = 32
PARTS = 2


@triton.jit
def add_block(x_ptr, y_ptr, out_ptr, start, n, BLOCK: tl.constexpr):
    """Add BLOCK elements from start on, as far as they exist."""
    offs = start + tl.arange(0, BLOCK)
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns PARTS blocks, one after another."""
    start = tl.program_id(axis=0).to(tl.int64) * (BLOCK * PARTS)
    for part in tl.static_range(PARTS):
        add_block(x_ptr, y_ptr, out_ptr, start + part * BLOCK, n, BLOCK)


def block_of(n: int) -> int:
    """Enough whole warps for a short vector, so that few lanes idle; WIDEST for a long one."""
    return min(WIDEST, triton.cdiv(n, WARP) * WARP)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    block = block_of(n)
    programs = triton.cdiv(n, block * PARTS)
    elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=block, PARTS=PARTS)
    return out
