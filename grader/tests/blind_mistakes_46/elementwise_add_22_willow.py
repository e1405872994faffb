# labs/lab1_elementwise_add/elementwise_add.py | corner | In `elementwise_add`, `lanes = PROGRAM_BYTES // 4` should be `PROGRAM_BYTES // x.element_size()`: the grid counts bytes with the true size of an element. For fp16 and bf16 there are half as many programs as needed, so later elements stay unwritten where n > 1024; fp32 is right, and so are 16-bit vectors of up to 1024.
"""Add two vectors: each program moves the same number of bytes of each of them."""

import torch
import triton
import triton.language as tl

PROGRAM_BYTES = 4096


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
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    programs = triton.cdiv(x.nbytes, PROGRAM_BYTES)
    if programs > 0:
        lanes = PROGRAM_BYTES // 4
        elementwise_add_kernel[(programs,)](x, y, out, x.numel(), BLOCK=lanes)
    return out
