# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) In block_number the axes are exchanged: `tl.program_id(axis=0) + tl.program_id(axis=1) * WIDTH` should be `tl.program_id(axis=0) * WIDTH + tl.program_id(axis=1)`, so blocks stay unwritten as soon as n > BLOCK. (2) In elementwise_add_kernel the sum is rounded to fp16 by `.to(tl.float16)`, which loses digits and range in fp32 and range in bf16; it should be stored without that.
"""Add two vectors on a grid with two axes."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
WIDTH = 8  # programs along axis 1


@triton.jit
def block_number(WIDTH: tl.constexpr):
    """The number of this program's block, as int64."""
    number = tl.program_id(axis=0) + tl.program_id(axis=1) * WIDTH
    return number.to(tl.int64)


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    offsets = block_number(WIDTH) * BLOCK + tl.arange(0, BLOCK)
    valid = offsets < n
    x = tl.load(x_ptr + offsets, mask=valid).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=valid).to(tl.float32)
    result = (x + y).to(tl.float16)
    tl.store(out_ptr + offsets, result.to(out_ptr.dtype.element_ty), mask=valid)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        blocks = triton.cdiv(n, BLOCK)
        grid = (triton.cdiv(blocks, WIDTH), WIDTH)
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK, WIDTH=WIDTH)
    return out
