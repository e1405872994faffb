# labs/lab1_elementwise_add/elementwise_add.py | race | load in line 21 and store in line 22 of next[0] (int32 scratch tensor, a plain counter): for n > BLOCK every two programs load and store it without an atomic; two that load the same ticket also store the same block of out (line 27) and a later block stays unwritten; values right one program after the other
"""Add two vectors: one program, one block of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    next_ptr,  # (1,) int32, the number of the next block that nobody has taken
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; a program takes the next block of the queue, whichever comes first."""
    block = tl.load(next_ptr)
    tl.store(next_ptr, block + 1)
    offs = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        queue = torch.zeros((1,), device=x.device, dtype=torch.int32)
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, queue, n, BLOCK=BLOCK)
    return out
