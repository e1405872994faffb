# labs/lab1_elementwise_add/elementwise_add.py | corner | in elementwise_add the number of programs is cdiv(x.nbytes, BLOCK_BYTES), where BLOCK_BYTES assumes 4 bytes an element, but the kernel covers BLOCK elements a program in every dtype; in fp16 and bf16 with n > 1024 only about half of the programs are launched and the rear part of out stays unwritten; fp32 is right; should be cdiv(x.numel(), BLOCK)
"""Elementwise add, one block of 4 KiB for each program."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
BLOCK_BYTES = 4 * BLOCK


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i] for the BLOCK elements of this program."""
    pid = tl.program_id(axis=0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous vectors of one dtype."""
    if out is None:
        out = torch.empty_like(x)
    programs = triton.cdiv(x.nbytes, BLOCK_BYTES)
    if programs > 0:
        elementwise_add_kernel[(programs,)](x, y, out, x.numel(), BLOCK=BLOCK)
    return out
