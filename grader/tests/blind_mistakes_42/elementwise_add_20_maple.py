# labs/lab1_elementwise_add/elementwise_add.py | right | Block pointers (`tl.make_block_ptr`) with `boundary_check`, whose base moves by a 64-bit offset and whose shape is what is left of the vector, in persistent programs with a `while` loop (at most 2112 programs).
"""Add two vectors: block pointers in persistent programs."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
MOST_PROGRAMS = 2112  # 16 for each of 132 multiprocessors


# Offsets of a block pointer have 32 bits. So its base moves, and its shape is what is left of the vector.


@triton.jit
def _read(ptr, first, n, BLOCK: tl.constexpr):
    window = tl.make_block_ptr(
        base=ptr + first,
        shape=(n - first,),
        strides=(1,),
        offsets=(0,),
        block_shape=(BLOCK,),
        order=(0,),
    )
    return tl.load(window, boundary_check=(0,))


@triton.jit
def _write(ptr, first, n, block, BLOCK: tl.constexpr):
    window = tl.make_block_ptr(
        base=ptr + first,
        shape=(n - first,),
        strides=(1,),
        offsets=(0,),
        block_shape=(BLOCK,),
        order=(0,),
    )
    tl.store(window, block, boundary_check=(0,))


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """Program pid takes every block whose number leaves the rest pid, divided by the number of programs."""
    first = tl.program_id(axis=0).to(tl.int64) * BLOCK
    step = tl.num_programs(axis=0).to(tl.int64) * BLOCK

    while first < n:
        x = _read(x_ptr, first, n, BLOCK)
        y = _read(y_ptr, first, n, BLOCK)
        _write(out_ptr, first, n, x + y, BLOCK)
        first += step


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    programs = min(triton.cdiv(n, BLOCK), MOST_PROGRAMS)
    if programs:
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, num_warps=4)
    return out
