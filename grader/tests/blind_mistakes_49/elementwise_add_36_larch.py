# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) In `block_number`, `row * tl.num_programs(axis=1) + column` should use `tl.num_programs(axis=0)`: blocks stay unwritten where the grid has more than one row, n > 512 * 1024 = 524288, such as 2^20 + 3 (but not n = 2^28, where both axes have 512 programs). (2) In the host function, `add_in = tl.float32 if x.element_size() == 4 else tl.float16` adds bf16 in fp16, which rounds twice, overflows above 65504 and loses tiny numbers; it should be tl.float32 for bf16. It shows in bf16 only, such as edges or n = 1009.
"""Add two vectors: a grid with two axes, and the dtype of the addition as a parameter."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
GRID_WIDTH = 512  # programs along axis 0; a longer vector gets more rows of them along axis 1


@triton.jit
def block_number():
    """Programs are counted line by line: axis 0 runs fastest."""
    column = tl.program_id(axis=0).to(tl.int64)
    row = tl.program_id(axis=1).to(tl.int64)
    return row * tl.num_programs(axis=1) + column


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    ADD_IN: tl.constexpr,  # dtype of the addition
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; a program owns one block, or none if it stands past the last one."""
    offs = block_number() * BLOCK + tl.arange(0, BLOCK)
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists).to(ADD_IN)
    y = tl.load(y_ptr + offs, mask=exists).to(ADD_IN)
    tl.store(out_ptr + offs, (x + y).to(out_ptr.dtype.element_ty), mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    blocks = triton.cdiv(n, BLOCK)
    grid = (min(blocks, GRID_WIDTH), triton.cdiv(blocks, GRID_WIDTH))
    add_in = tl.float32 if x.element_size() == 4 else tl.float16
    elementwise_add_kernel[grid](x, y, out, n, ADD_IN=add_in, BLOCK=BLOCK)
    return out
