# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | elementwise_add, the launch line: b_ptr=x, so the kernel adds x to itself and never reads y | "out = x + y"; every n above 0 (only x == y hides it)
"""Vector addition with a generic kernel for two operands."""

import torch
import triton
import triton.language as tl

WIDTH = 2048


@triton.jit
def sum_of_two_kernel(a_ptr, b_ptr, c_ptr, length, WIDTH: tl.constexpr):
    """c = a + b for WIDTH elements of contiguous vectors."""
    first = tl.program_id(axis=0).to(tl.int64) * WIDTH
    index = first + tl.arange(0, WIDTH)
    valid = index < length
    a = tl.load(a_ptr + index, mask=valid)
    b = tl.load(b_ptr + index, mask=valid)
    tl.store(c_ptr + index, a + b, mask=valid)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous vectors; into out if there is one."""
    result = torch.empty_like(x) if out is None else out
    length = x.numel()
    if length == 0:
        return result
    programs = triton.cdiv(length, WIDTH)
    sum_of_two_kernel[(programs,)](a_ptr=x, b_ptr=x, c_ptr=result, length=length, WIDTH=WIDTH)
    return result
