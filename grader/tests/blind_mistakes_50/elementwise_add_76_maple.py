# labs/lab1_elementwise_add/elementwise_add.py | corner | In `rest_kernel`, `exists = offs < rest` compares the offset in the whole vector with the number of elements left; it should be `lane < rest` (or `offs < start + rest`). The last, partial block stays unwritten where there are whole blocks before it: n > 1024 and no multiple of 1024. Shorter vectors and whole blocks are right.
"""Add two vectors with two kernels: one for the whole blocks, one for what is left."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def whole_blocks_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    BLOCK: tl.constexpr,
):
    """Program pid adds block pid; every lane of it exists."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    y = tl.load(y_ptr + offs)
    tl.store(out_ptr + offs, x + y)


@triton.jit
def rest_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    start,  # the first element behind the whole blocks
    rest,  # how many elements are left from there, 1 to BLOCK - 1
    BLOCK: tl.constexpr,
):
    """A single program adds the last, partial block."""
    lane = tl.arange(0, BLOCK)
    offs = start + lane
    exists = offs < rest
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    blocks, rest = divmod(x.numel(), BLOCK)
    if blocks:
        whole_blocks_kernel[(blocks,)](x, y, out, BLOCK=BLOCK)
    if rest:
        rest_kernel[(1,)](x, y, out, blocks * BLOCK, rest, BLOCK=BLOCK)
    return out
