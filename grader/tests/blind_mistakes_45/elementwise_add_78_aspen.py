# labs/lab1_elementwise_add/elementwise_add.py | error | In `elementwise_add_kernel`, `left = n.to(tl.int64) - start` fails for n = 1: an integer argument that is 1 is a constant and has no `.to`. It should be `n - start` (start is int64 already). Compile error for n = 1 only; all other sizes are right.
"""Add two vectors: a program moves the pointers to its block and counts what is left."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def add_block(x_ptr, y_ptr, out_ptr, left, BLOCK: tl.constexpr):
    """Add the first `left` elements behind the pointers, BLOCK at most."""
    lanes = tl.arange(0, BLOCK)
    exists = lanes < left
    x = tl.load(x_ptr + lanes, mask=exists)
    y = tl.load(y_ptr + lanes, mask=exists)
    tl.store(out_ptr + lanes, x + y, mask=exists)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    # Both numbers in 64 bits: neither the product nor the difference wraps around.
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    left = n.to(tl.int64) - start
    add_block(x_ptr + start, y_ptr + start, out_ptr + start, left, BLOCK)


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
