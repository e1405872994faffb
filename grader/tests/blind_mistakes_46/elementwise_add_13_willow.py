# labs/lab1_elementwise_add/elementwise_add.py | error | In `elementwise_add_kernel`, `left = n.to(tl.int64) - start`: for n = 1 the argument is specialised to a constant, which has no `.to`, so the kernel does not compile. It should be `-start + n`, or the mask `start + lane < n`. Only at n = 1.
"""Add two vectors: pointers are moved to the program's block first, the mask counts what is left."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    pid = tl.program_id(axis=0).to(tl.int64)
    start = pid * BLOCK
    left = n.to(tl.int64) - start
    x_ptr += start
    y_ptr += start
    out_ptr += start
    lane = tl.arange(0, BLOCK)
    exists = lane < left
    total = tl.load(x_ptr + lane, mask=exists) + tl.load(y_ptr + lane, mask=exists)
    tl.store(out_ptr + lane, total, mask=exists)


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
