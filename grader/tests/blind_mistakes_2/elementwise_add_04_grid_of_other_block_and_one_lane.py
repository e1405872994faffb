# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) elementwise_add: the grid counts blocks of BLOCK = 1024, the kernel is launched with BLOCK=512; (2) elementwise_add_kernel, exists: '<=' in place of '<' | "enough programs to cover n elements" / "a masked lane neither reads nor writes"; (1) n above 512: elements from 512 * cdiv(n, 1024) on are unwritten, (2) element n is read and written where the last launched block reaches past n
"""Add two vectors: one program, one block of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    offsets = start + tl.arange(0, BLOCK)
    exists = offsets <= n
    x_block = tl.load(x_ptr + offsets, mask=exists)
    y_block = tl.load(y_ptr + offsets, mask=exists)
    tl.store(out_ptr + offsets, x_block + y_block, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n != 0:
        grid = (triton.cdiv(n, BLOCK),)
        # 4 warps with 4 numbers for each thread
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=512, num_warps=4)
    return out
