# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) elementwise_add: the grid `max(1, n // BLOCK)` rounds down, so where n is above 1024 and no multiple of it, the last n % 1024 elements stay unwritten; it should be triton.cdiv(n, BLOCK). (2) elementwise_add_kernel: the sum starts from `tl.zeros`, so -0.0 + -0.0 becomes +0.0 (shows in the cases with zeros of both signs, in all dtypes); it should be the sum of the two loads alone
"""Add two vectors: a sum per lane, to which each input is added in turn."""

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
    offs = first + tl.arange(0, BLOCK)
    exists = offs < n
    total = tl.zeros((BLOCK,), dtype=out_ptr.dtype.element_ty)
    total += tl.load(x_ptr + offs, mask=exists)
    total += tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, total, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    n = x.shape[0]
    if out is None:
        out = torch.empty_like(x)
    if n == 0:
        return out
    programs = max(1, n // BLOCK)
    elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK)
    return out
