# labs/lab1_elementwise_add/elementwise_add.py | contract | In elementwise_add, `target = x if out is None else out` takes x as the destination where no out is given: the returned numbers are right, but the input x is overwritten and is itself returned, for every n > 0 without out (at n = 0 x is returned as well); inputs are read-only, and a new tensor like x is asked for. It should be `torch.empty_like(x) if out is None else out`. Calls with out are right.
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
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    begin = tl.program_id(axis=0).to(tl.int64) * BLOCK
    offs = begin + tl.arange(0, BLOCK)
    mine = offs < n
    value = tl.load(x_ptr + offs, mask=mine)
    value += tl.load(y_ptr + offs, mask=mine)
    tl.store(out_ptr + offs, value, mask=mine)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if x.shape != y.shape or x.dtype != y.dtype:
        raise ValueError("x and y must have one shape and one dtype")
    target = x if out is None else out
    n = target.numel()
    if n > 0:
        elementwise_add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, target, n, BLOCK=BLOCK)
    return target
