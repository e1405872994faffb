# labs/lab1_elementwise_add/elementwise_add.py | error | `grid = (min(triton.cdiv(n, BLOCK), MAX_PROGRAMS))` is an int, not a tuple, so the launch raises a TypeError; the comma is missing: `(min(...),)`.
"""Vector add as a grid-stride loop: a bounded number of programs, each takes every k-th block."""

import torch
import triton
import triton.language as tl

BLOCK = 2048
MAX_PROGRAMS = 4096


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    first = tl.program_id(axis=0).to(tl.int64) * BLOCK
    stride = tl.num_programs(axis=0).to(tl.int64) * BLOCK
    lane = tl.arange(0, BLOCK)
    for start in range(first, n, stride):
        i = start + lane
        exists = i < n
        x = tl.load(x_ptr + i, mask=exists)
        y = tl.load(y_ptr + i, mask=exists)
        tl.store(out_ptr + i, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.size(0)
    if n:
        grid = (min(triton.cdiv(n, BLOCK), MAX_PROGRAMS))
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK, num_warps=8)
    return out
