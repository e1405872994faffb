# labs/lab1_elementwise_add/elementwise_add.py | contract | In `elementwise_add`, `torch.empty((n,), device=x.device)` has no dtype, so without `out` the result of fp16 and bf16 inputs is an fp32 tensor (with the right numbers), but the README promises a new tensor like x; it should be `torch.empty_like(x)`. It shows for fp16 and bf16 without `out`, also for n = 0.
"""Add two vectors: the block is chosen so that each thread moves whole 16-byte pieces, whatever the dtype."""

import torch
import triton
import triton.language as tl

WARPS = 4
PIECES = 2  # pieces of 16 bytes that a thread reads from x, and as many from y


@triton.jit
def owned(n, BLOCK: tl.constexpr):
    """The elements of this program, and which of them exist."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    offs = start + tl.arange(0, BLOCK)
    return offs, offs < n


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,)
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    offs, exists = owned(n, BLOCK)
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    total = x + y
    tl.store(out_ptr + offs, total.to(out_ptr.dtype.element_ty), mask=exists)


def block_of(item_bytes: int) -> int:
    """Return the elements of a program: 1024 of 4 bytes, 2048 of 2 bytes."""
    return PIECES * 16 // item_bytes * 32 * WARPS


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out` where one is given; else to a new tensor.
    """
    n = x.numel()
    if out is None:
        out = torch.empty((n,), device=x.device)
    if n > 0:
        block = block_of(x.element_size())
        grid = (triton.cdiv(n, block),)
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=block, num_warps=WARPS)
    return out
