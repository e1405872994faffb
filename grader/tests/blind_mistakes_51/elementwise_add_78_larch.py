# labs/lab1_elementwise_add/elementwise_add.py | error | In grid_stride_kernel `end = n.to(tl.int64)` fails for n = 1 only, because an integer argument of 1 is a constant, which has no `.to`. It should be plain `n` as the bound (or tl.full / do_not_specialize). All other sizes are right.
"""Add two vectors with a grid-stride loop: each program takes every programs-th block."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
MOST_PROGRAMS = 4096


@triton.jit
def add_block(x_ptr, y_ptr, out_ptr, offs, end):
    """Load, add and store one block; lanes from `end` on do not exist."""
    exists = offs < end
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


@triton.jit
def grid_stride_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """Program pid owns the blocks pid, pid + programs, pid + 2 * programs, ..."""
    # Every bound of the loop is 64 bits wide, because offsets may pass 2^31.
    begin = tl.program_id(axis=0).to(tl.int64) * BLOCK
    stride = tl.num_programs(axis=0).to(tl.int64) * BLOCK
    end = n.to(tl.int64)

    lanes = tl.arange(0, BLOCK)
    for first in range(begin, end, stride):
        add_block(x_ptr, y_ptr, out_ptr, first + lanes, end)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        programs = min(triton.cdiv(n, BLOCK), MOST_PROGRAMS)
        grid_stride_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, num_warps=4)
    return out
