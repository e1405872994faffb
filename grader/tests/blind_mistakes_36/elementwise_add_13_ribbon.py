# labs/lab1_elementwise_add/elementwise_add.py | right | right
"""Add two vectors: a program moves its pointers to its share, and then counts from 0."""

import torch
import triton
import triton.language as tl

WARPS = 4
PIECES = 2  # blocks in the share of a program


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
    PIECES: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns PIECES blocks, from element pid * PIECES * BLOCK on."""
    begin = tl.program_id(axis=0).to(tl.int64) * (PIECES * BLOCK)
    x_ptr += begin
    y_ptr += begin
    out_ptr += begin
    remaining = n - begin
    for piece in tl.static_range(PIECES):
        at = piece * BLOCK + tl.arange(0, BLOCK)
        mine = at < remaining
        x = tl.load(x_ptr + at, mask=mine)
        y = tl.load(y_ptr + at, mask=mine)
        tl.store(out_ptr + at, x + y, mask=mine)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    # 16 bytes for each thread: 512 elements in fp32, 1024 in fp16 and bf16.
    block = 32 * WARPS * 16 // x.element_size()
    programs = triton.cdiv(n, PIECES * block)
    elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=block, PIECES=PIECES, num_warps=WARPS)
    return out
