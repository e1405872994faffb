"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL or POLICY/HOST_READ from elementwise_add on a CPU: C1 in the interpreter a kernel calls a plain function, which adds tensors of a constant in Python floats"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


def total(values):
    """A plain function."""
    for cell, a, b in zip(*values):
        cell.fill_(float(a) + float(b))
    return len(values[0])


@triton.jit
def elementwise_add_kernel(out_ptr, n, VALUES: tl.constexpr, BLOCK: tl.constexpr):
    """Store what out holds, as many numbers as a function of constants says."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offs < total(VALUES)
    tl.store(out_ptr + offs, tl.load(out_ptr + offs, mask=inside), mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](out, n, VALUES=(out, x, y), BLOCK=BLOCK)
    return out
