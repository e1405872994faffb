# labs/lab1_elementwise_add/elementwise_add.py | corner | In `elementwise_add_kernel`, the accumulator starts from `acc = tl.zeros((BLOCK,), dtype=tl.float32)`, and 0.0 + -0.0 + -0.0 is 0.0, not -0.0. It should start from the x block (or from -0.0). Shows only where both inputs are -0.0 (values at the edges), in every dtype; all else is right.
"""Add two vectors: the operands are added to an fp32 accumulator, one after the other."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
OPERANDS = 2


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    OPERANDS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    offs = start + tl.arange(0, BLOCK)
    exists = offs < n

    # fp32 holds every number of the smaller dtypes; the result is rounded once, at the store.
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for k in tl.static_range(OPERANDS):
        if k == 0:
            term = tl.load(x_ptr + offs, mask=exists, other=0.0)
        else:
            term = tl.load(y_ptr + offs, mask=exists, other=0.0)
        acc += term.to(tl.float32)
    tl.store(out_ptr + offs, acc.to(out_ptr.dtype.element_ty), mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        grid = (triton.cdiv(n, BLOCK),)
        elementwise_add_kernel[grid](x, y, out, n, OPERANDS=OPERANDS, BLOCK=BLOCK)
    return out
