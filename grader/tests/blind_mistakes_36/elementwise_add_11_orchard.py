# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | elementwise_add: the kernel writes to `padded`, a new tensor rounded up to full blocks, and `out = padded[:n]` only binds the name `out` to a part of it, so a given out stays unwritten and is not the tensor returned; in every case that passes out (also at n = 0); right only where no out is given; the kernel should store into out itself, with a mask
"""Add two vectors: the result is rounded up to full blocks, so that every lane may store."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    sum_ptr,  # (programs * BLOCK,) like x
    n,
    BLOCK: tl.constexpr,
):
    """sum[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    lanes = tl.arange(0, BLOCK)
    left = n - start
    x = tl.load(x_ptr + start + lanes, mask=lanes < left, other=0.0)
    y = tl.load(y_ptr + start + lanes, mask=lanes < left, other=0.0)
    tl.store(sum_ptr + start + lanes, x + y)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    n = x.numel()
    programs = triton.cdiv(n, BLOCK)
    padded = x.new_empty(programs * BLOCK)
    if programs > 0:
        elementwise_add_kernel[(programs,)](x, y, padded, n, BLOCK=BLOCK)
    out = padded[:n]
    return out
