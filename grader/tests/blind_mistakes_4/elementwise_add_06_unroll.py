# labs/lab1_elementwise_add/elementwise_add.py | corner | elementwise_add_kernel, the sum starts from a block of zeros: -0.0 + -0.0 becomes 0.0 + -0.0 + -0.0 = +0.0, so the sign of a zero is lost; the sum must be x + y and nothing else
"""out = x + y. A program has UNROLL blocks next to each other, with several loads in flight."""

import torch
import triton
import triton.language as tl

BLOCK = 512
UNROLL = 4


@triton.jit
def read(ptr, offs, n):
    return tl.load(ptr + offs, mask=offs < n, other=0.0)


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, UNROLL: tl.constexpr):
    first = tl.program_id(axis=0).to(tl.int64) * (BLOCK * UNROLL)
    for u in tl.static_range(UNROLL):
        offs = first + u * BLOCK + tl.arange(0, BLOCK)
        acc = tl.zeros((BLOCK,), dtype=x_ptr.dtype.element_ty)
        acc += read(x_ptr, offs, n)
        acc += read(y_ptr, offs, n)
        tl.store(out_ptr + offs, acc, mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    programs = triton.cdiv(n, BLOCK * UNROLL)
    if programs:
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, UNROLL=UNROLL)
    return out
