# labs/lab1_elementwise_add/elementwise_add.py | corner | `programs = triton.cdiv(n, block)` is computed with block = 2048 before fp32 halves the block to 1024, so in fp32 the second half of out is never written for n above 1024; programs should be computed after the block is halved.
"""Add two vectors: one program, one block of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    offsets = start + tl.arange(0, BLOCK)
    is_there = offsets < n
    x_block = tl.load(x_ptr + offsets, mask=is_there)
    y_block = tl.load(y_ptr + offsets, mask=is_there)
    tl.store(out_ptr + offsets, x_block + y_block, mask=is_there)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    assert x.shape == y.shape and x.dtype == y.dtype, f"got {x.shape} and {y.shape}, {x.dtype} and {y.dtype}"
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out

    block = BLOCK
    programs = triton.cdiv(n, block)
    # 4 KB of each tensor per program, in every dtype
    if x.dtype == torch.float32:
        block = block // 2
    elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=block)
    return out
