# labs/lab1_elementwise_add/elementwise_add.py | corner | elementwise_add computes the number of programs from bytes, triton.cdiv(x.nbytes, PROGRAM_BYTES) with 4096 bytes per program, but each program always owns BLOCK = 1024 elements, which is 4096 bytes only in fp32. In fp16 and bf16 there are half as many programs as needed: for n > 1024 the later elements (from cdiv(n, 2048) * 1024 on) are never written. fp32, and 16-bit with n <= 1024, are right. Should be triton.cdiv(n, BLOCK)
"""Add two vectors, a page of memory at a time."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
PROGRAM_BYTES = 4096


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """One block of the sum per program."""
    first = tl.program_id(axis=0).to(tl.int64) * BLOCK
    where = first + tl.arange(0, BLOCK)
    real = where < n
    a = tl.load(x_ptr + where, mask=real)
    b = tl.load(y_ptr + where, mask=real)
    tl.store(out_ptr + where, a + b, mask=real)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    programs = triton.cdiv(x.nbytes, PROGRAM_BYTES)
    if programs > 0:
        elementwise_add_kernel[(programs,)](x, y, out, x.numel(), BLOCK=BLOCK)
    return out
