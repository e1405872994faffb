# labs/lab1_elementwise_add/elementwise_add.py | corner | The sum is accumulated from `total = tl.zeros(...)`, so it is 0.0 + x + y, and -0.0 + -0.0 gives +0.0; it should be x + y with nothing added to it.
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
    pid = tl.program_id(axis=0).to(tl.int64)
    idx = pid * BLOCK + tl.arange(0, BLOCK)
    valid = idx < n

    # accumulate in fp32, round once when storing
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    total += tl.load(x_ptr + idx, mask=valid, other=0.0).to(tl.float32)
    total += tl.load(y_ptr + idx, mask=valid, other=0.0).to(tl.float32)
    tl.store(out_ptr + idx, total.to(out_ptr.dtype.element_ty), mask=valid)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    n_programs = triton.cdiv(n, BLOCK)
    if n_programs > 0:
        elementwise_add_kernel[(n_programs,)](x, y, out, n, BLOCK=BLOCK)
    return out
