# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) elementwise_add_kernel computes the mask `keep = offs < n` once, before the loop that moves offs on by BLOCK, so the second to fourth block of a program are loaded and stored under the mask of its first: reads and writes past the end, for every n that is no multiple of BLOCK * STEPS = 2048 (for n = 1 the indices 512, 1024 and 1536 are touched, too); the mask should be computed again in each step. (2) elementwise_add returns its result only inside `if out is None`; where out is given it returns None (every case that passes out, n = 0 too); it should return out at the end
"""Elementwise add: each program takes several blocks, one after the other."""

import torch
import triton
import triton.language as tl

BLOCK = 512
STEPS = 4


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, STEPS: tl.constexpr):
    """Program pid owns the elements pid * BLOCK * STEPS to (pid + 1) * BLOCK * STEPS - 1."""
    pid = tl.program_id(axis=0).to(tl.int64)
    offs = pid * (BLOCK * STEPS) + tl.arange(0, BLOCK)
    keep = offs < n
    for step in range(STEPS):
        x = tl.load(x_ptr + offs, mask=keep)
        y = tl.load(y_ptr + offs, mask=keep)
        tl.store(out_ptr + offs, x + y, mask=keep)
        offs += BLOCK


def launch(x, y, out):
    n = x.numel()
    if n == 0:
        return
    programs = triton.cdiv(n, BLOCK * STEPS)
    elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, STEPS=STEPS)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
        launch(x, y, out)
        return out
    launch(x, y, out)
