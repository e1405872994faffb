# lab1/elementwise_add.py | error | kernel: n.to(tl.int64): Triton specialises an integer argument that is 1 to a constexpr, which has no method to, so the kernel does not compile for n = 1 (shows only in compilation or on a GPU, not in the interpreter) | "The sizes include 0, 1"; n = 1 only
"""Add two vectors: one program, one block of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i], 64 bit throughout."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    left = n.to(tl.int64) - start
    lanes = tl.arange(0, BLOCK)
    mask = lanes < left
    x_ptr += start
    y_ptr += start
    out_ptr += start
    tl.store(out_ptr + lanes, tl.load(x_ptr + lanes, mask=mask) + tl.load(y_ptr + lanes, mask=mask), mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        programs = triton.cdiv(n, BLOCK)
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK)
    return out
