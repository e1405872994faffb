# labs/lab1_elementwise_add/elementwise_add.py | contract | Where no `out` is given, elementwise_add allocates `torch.empty(x.shape, device=x.device)`, which is always fp32, so for fp16 and bf16 the result has the wrong dtype. It should be torch.empty_like(x), or pass dtype=x.dtype.
"""Add two vectors; the width of a block depends on how many elements there are."""

import torch
import triton
import triton.language as tl

SMALLEST = 128
LARGEST = 2048


def width_for(n: int) -> int:
    """The smallest power of two that covers n, between SMALLEST and LARGEST."""
    return max(SMALLEST, min(LARGEST, triton.next_power_of_2(n)))


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    lanes = tl.arange(0, BLOCK)
    mask = start + lanes < n
    # move the three pointers once, then only the lanes are added
    x_ptr += start
    y_ptr += start
    out_ptr += start
    x = tl.load(x_ptr + lanes, mask=mask)
    y = tl.load(y_ptr + lanes, mask=mask)
    tl.store(out_ptr + lanes, x + y, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y; the sum goes to `out` where one is given, else to a new tensor."""
    result = out
    if result is None:
        result = torch.empty(x.shape, device=x.device)
    n = x.numel()
    if n > 0:
        block = width_for(n)
        elementwise_add_kernel[(triton.cdiv(n, block),)](x, y, result, n, BLOCK=block)
    return result
