# labs/lab1_elementwise_add/elementwise_add.py | right | unusual: at most 264 persistent programs; the rounds in which every program has a whole block have neither masks nor an n, and one masked round follows; sums in fp32, rounded once
"""Elementwise add with persistent programs.

Starting a program costs time, so there are only as many as the GPU holds at once, and each of them takes
several blocks: block pid, then block pid + programs, and so on. A round is one block for each program.
"""

import torch
import triton
import triton.language as tl

BLOCK = 1024
MOST_PROGRAMS = 264


@triton.jit
def persistent_add_kernel(x_ptr, y_ptr, out_ptr, n, full_rounds, BLOCK: tl.constexpr):
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    step = tl.num_programs(axis=0) * BLOCK

    # full_rounds * step <= n, so all of these elements exist
    for _ in range(full_rounds):
        x = tl.load(x_ptr + offs).to(tl.float32)
        y = tl.load(y_ptr + offs).to(tl.float32)
        tl.store(out_ptr + offs, (x + y).to(out_ptr.dtype.element_ty))
        offs += step

    # what is left is less than a round; some or all of this block may lie past the end
    left = offs < n
    x = tl.load(x_ptr + offs, mask=left, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=left, other=0.0).to(tl.float32)
    tl.store(out_ptr + offs, (x + y).to(out_ptr.dtype.element_ty), mask=left)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    programs = min(triton.cdiv(n, BLOCK), MOST_PROGRAMS)
    if programs > 0:
        full_rounds = n // (programs * BLOCK)
        persistent_add_kernel[(programs,)](x, y, out, n, full_rounds, BLOCK=BLOCK)
    return out
