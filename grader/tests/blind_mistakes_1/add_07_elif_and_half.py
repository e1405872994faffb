# lab1/elementwise_add.py | two | (1) host: the tail launch is in an `elif rest`, so it is skipped as soon as there is one full block; (2) kernel part(): both operands are converted .to(tl.float16) before the addition whatever the dtype | (1) "A block that no program stores is detected", n > 1024 and no multiple of 1024: the tail is unwritten; (2) "every bit must agree with PyTorch", fp32 (and bf16): only about 3 digits are right
"""Vector add: full blocks without a mask, then the rest."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def part(p, offs):
    return tl.load(p + offs).to(tl.float16)


@triton.jit
def full_blocks(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, (part(x_ptr, offs) + part(y_ptr, offs)).to(out_ptr.dtype.element_ty))


@triton.jit
def single_elements(x_ptr, y_ptr, out_ptr, start):
    offs = start + tl.program_id(axis=0).to(tl.int64)
    tl.store(out_ptr + offs, (part(x_ptr, offs) + part(y_ptr, offs)).to(out_ptr.dtype.element_ty))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    full, rest = divmod(n, BLOCK)
    if full:
        full_blocks[(full,)](x, y, out, BLOCK=BLOCK)
    elif rest:
        single_elements[(rest,)](x, y, out, full * BLOCK, num_warps=1)
    return out
