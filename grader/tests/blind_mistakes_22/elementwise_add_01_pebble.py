# labs/lab1_elementwise_add/elementwise_add.py | error | The launch in elementwise_add passes x, y, out, n and BLOCK, but the kernel has a parameter `steps` behind n, which is not passed (it should be STEPS): TypeError, a required argument is missing.
"""Add two vectors. A program adds several blocks in a row, so fewer programs have to start."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
STEPS = 4  # blocks of one program


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, steps, BLOCK: tl.constexpr):
    """Program pid owns `steps` blocks one behind the other."""
    first = tl.program_id(axis=0).to(tl.int64) * steps * BLOCK
    for step in range(0, steps):
        offs = first + step * BLOCK + tl.arange(0, BLOCK)
        exists = offs < n
        x = tl.load(x_ptr + offs, mask=exists)
        y = tl.load(y_ptr + offs, mask=exists)
        tl.store(out_ptr + offs, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    programs = triton.cdiv(n, BLOCK * STEPS)
    elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK)
    return out
