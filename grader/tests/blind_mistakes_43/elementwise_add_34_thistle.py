# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | In `elementwise_add_kernel`: (1) `y_ptrs += BLOCK` should be `y_ptrs += stride`: from the second round of a program on, y comes from the wrong place; shows where n > PROGRAMS * BLOCK = 524288 (n = 2^20 + 3, and the timed sizes). (2) `total = tl.zeros((BLOCK,), ...)` to which both operands are added: 0.0 + -0.0 + -0.0 is 0.0 and should be -0.0; the sum should start from x; shows in the cases with values=edges, all dtypes.
"""Add two vectors with a fixed number of programs, each of which walks through the vectors."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
PROGRAMS = 512  # more blocks than this are shared out among the programs, in turn


@triton.jit
def plus_block(total, ptrs, exists):
    """total and one more block of an operand, in the operand's own dtype."""
    return total + tl.load(ptrs, mask=exists, other=0.0)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; a program owns every num_programs-th block, from its own number on."""
    lanes = tl.arange(0, BLOCK)
    first = tl.program_id(axis=0).to(tl.int64) * BLOCK
    stride = tl.num_programs(axis=0).to(tl.int64) * BLOCK
    x_ptrs = x_ptr + first + lanes
    y_ptrs = y_ptr + first + lanes
    out_ptrs = out_ptr + first + lanes
    for start in range(first, n, stride):
        exists = start + lanes < n
        total = tl.zeros((BLOCK,), dtype=out_ptr.dtype.element_ty)
        total = plus_block(total, x_ptrs, exists)
        total = plus_block(total, y_ptrs, exists)
        tl.store(out_ptrs, total, mask=exists)
        x_ptrs += stride
        y_ptrs += BLOCK
        out_ptrs += stride


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        programs = min(triton.cdiv(n, BLOCK), PROGRAMS)
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, num_warps=4)
    return out
