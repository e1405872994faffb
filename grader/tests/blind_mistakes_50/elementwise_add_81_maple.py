# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) In `block_of`, `if dtype == torch.bfloat16:` forgets fp16, which has 2 bytes, too (`dtype in (torch.float16, torch.bfloat16)`, or `BLOCK_BYTES // dtype.itemsize`): fp16 gets blocks of 1024 while the grid, from `x.nbytes`, counts blocks of 2048, so for fp16 with n > 1024 (1536, 4099, 65537) only about the first half is written. (2) In `elementwise_add_kernel`, `exists = offs <= n` should be `offs < n`: one lane past the end is read and written, out of bounds, in fp32 and bf16 for all n that are no multiple of the block, and in fp16 for n < 1024.
"""Add two vectors in blocks of 4096 bytes, whatever the dtype."""

import torch
import triton
import triton.language as tl

BLOCK_BYTES = 4096  # 2 accesses of 16 bytes for each of 128 threads


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
    offs = start + tl.arange(0, BLOCK)
    exists = offs <= n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


def block_of(dtype: torch.dtype) -> int:
    """Elements in BLOCK_BYTES."""
    if dtype == torch.bfloat16:
        return BLOCK_BYTES // 2
    return BLOCK_BYTES // 4


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        grid = (triton.cdiv(x.nbytes, BLOCK_BYTES),)
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=block_of(x.dtype))
    return out
