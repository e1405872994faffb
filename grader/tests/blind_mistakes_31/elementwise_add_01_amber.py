# labs/lab1_elementwise_add/elementwise_add.py | corner | In elementwise_add_kernel, `tl.minimum(tl.maximum(total, -65504.0), 65504.0)` saturates fp16 sums: in fp16 only, where an input is inf or -inf (and the sum is infinite) or the sum rounds beyond 65504, the result is +-65504 instead of +-inf as in torch.add; fp32 and bf16 are right. The clamp should be left out.
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
    first = tl.program_id(axis=0).to(tl.int64) * BLOCK
    where = first + tl.arange(0, BLOCK)
    inside = where < n

    # Add in fp32, and round once at the end.
    a = tl.load(x_ptr + where, mask=inside).to(tl.float32)
    b = tl.load(y_ptr + where, mask=inside).to(tl.float32)
    total = a + b
    if out_ptr.dtype.element_ty == tl.float16:
        total = tl.minimum(tl.maximum(total, -65504.0), 65504.0)
    tl.store(out_ptr + where, total.to(out_ptr.dtype.element_ty), mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
