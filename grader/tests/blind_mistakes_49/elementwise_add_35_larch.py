# labs/lab1_elementwise_add/elementwise_add.py | corner | In `elementwise_add_kernel`, `total = tl.zeros((BLOCK,), dtype=tl.float32)` is the start of the sum, and 0.0 + -0.0 + -0.0 is 0.0. It should start with x itself (`x.to(tl.float32)`, then y is added), or with -0.0; it shows only where x and y are both -0.0, in all dtypes.
"""Add two vectors: an fp32 accumulator, and several blocks for each program."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
BLOCKS_EACH = 2


@triton.jit
def accumulate(total, ptr, offs, exists):
    """total + the block at ptr, in fp32 whatever the dtype of the tensor is."""
    return total + tl.load(ptr + offs, mask=exists, other=0.0).to(tl.float32)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
    BLOCKS_EACH: tl.constexpr,
):
    """out[i] = x[i] + y[i]; a program owns BLOCKS_EACH blocks behind each other."""
    first = tl.program_id(axis=0).to(tl.int64) * (BLOCK * BLOCKS_EACH)
    for b in tl.static_range(BLOCKS_EACH):
        offs = first + b * BLOCK + tl.arange(0, BLOCK)
        exists = offs < n
        total = tl.zeros((BLOCK,), dtype=tl.float32)
        total = accumulate(total, x_ptr, offs, exists)
        total = accumulate(total, y_ptr, offs, exists)
        # Two fp16 or bf16 numbers have an fp32 sum that rounds to the same bits as their exact sum.
        tl.store(out_ptr + offs, total.to(out_ptr.dtype.element_ty), mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        programs = triton.cdiv(n, BLOCK * BLOCKS_EACH)
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, BLOCKS_EACH=BLOCKS_EACH)
    return out
