# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | elementwise_add_kernel, `tl.reshape(tl.join(left, right), (BLOCK,))`: tl.join puts the two halves into a new last axis, so the reshape interleaves them (left[0], right[0], left[1], ...) instead of putting right behind left, and the sums are stored to wrong elements for every n from 2 on. Each half should be stored at its own offsets (or the joined block transposed before the reshape).
"""Add two vectors: one program, one block of the result, made of two halves."""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def sum_at(x_ptr, y_ptr, offs, n):
    """Return x + y at the offsets that exist, 0 at the others."""
    live = offs < n
    x = tl.load(x_ptr + offs, mask=live, other=0.0)
    y = tl.load(y_ptr + offs, mask=live, other=0.0)
    return x + y


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    HALF: tl.constexpr = BLOCK // 2
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK

    # The loads of both halves are under way at the same time.
    lane = tl.arange(0, HALF)
    left = sum_at(x_ptr, y_ptr, start + lane, n)
    right = sum_at(x_ptr, y_ptr, start + HALF + lane, n)

    # One wide store for the whole block.
    block = tl.reshape(tl.join(left, right), (BLOCK,))
    offs = start + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, block, mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        grid = (triton.cdiv(n, BLOCK),)
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)
    return out
