# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In `elementwise_add_kernel`, `total = tl.reshape(tl.join(lower, upper), (BLOCK,))` interleaves the two halves instead of putting one behind the other: `tl.join` adds a last axis of 2, so it should be `tl.reshape(tl.join(lower, upper).permute(1, 0), (BLOCK,))`. Wrong for every n from 2 on; only n = 1 is right (and, in longer vectors, the first and the last element of each whole block).
"""Add two vectors: each program adds two halves of a block and stores them at once."""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def half_sum(x_ptr, y_ptr, first, n, HALF: tl.constexpr):
    """The sums of the HALF elements that begin at `first`."""
    offs = first + tl.arange(0, HALF)
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
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

    # Both halves are in flight before the one store.
    lower = half_sum(x_ptr, y_ptr, start, n, HALF)
    upper = half_sum(x_ptr, y_ptr, start + HALF, n, HALF)
    total = tl.reshape(tl.join(lower, upper), (BLOCK,))

    offs = start + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, total, mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK, num_warps=4)
    return out
