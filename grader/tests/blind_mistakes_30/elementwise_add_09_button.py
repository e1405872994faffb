# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) in elementwise_add_kernel a program that covers STEPS blocks begins at pid * BLOCK instead of pid * BLOCK * STEPS, so programs overlap and for n > 5120 (as 65537) the rear part of out stays unwritten, in every dtype; (2) the sum is cast to tl.float16 before it is stored, so that every fp32 (and bf16) result has only the digits and range of fp16; it should be cast to out_ptr.dtype.element_ty
"""Add two vectors: a program adds four blocks, one after another."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
STEPS = 4


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, STEPS: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BLOCK
    for step in tl.static_range(STEPS):
        offs = first + step * BLOCK + tl.arange(0, BLOCK)
        inside = offs < n
        x = tl.load(x_ptr + offs, mask=inside).to(tl.float32)
        y = tl.load(y_ptr + offs, mask=inside).to(tl.float32)
        total = (x + y).to(tl.float16)
        tl.store(out_ptr + offs, total, mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y, added in fp32."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    programs = triton.cdiv(n, BLOCK * STEPS)
    if programs:
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, STEPS=STEPS)
    return out
