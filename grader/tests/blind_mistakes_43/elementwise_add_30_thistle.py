# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In `elementwise_add_kernel`, `pairs = tl.reshape(tl.join(x, y), (2, BLOCK))` takes tl.join for a stack of two rows; join adds a last axis of length 2, (BLOCK, 2), so after the reshape row 0 is x0 y0 x1 y1 ... of the first half of the block and row 1 that of the second half, and `tl.reduce(pairs, axis=0, ...)` adds elements that do not belong together. It should be `tl.reduce(tl.join(x, y), axis=1, combine_fn=plus)`. Wrong for every n > 0 (for n = 1 the result is x alone), in all dtypes.
"""Add two vectors: each program joins a block of x with a block of y and reduces the pairs."""

import torch
import triton
import triton.language as tl

# Bytes of one input that a program reads: 8 fp32 or 16 fp16 numbers for each of its threads.
BLOCK_BYTES = 8192
WARPS = 8


@triton.jit
def plus(a, b):
    """How two elements of a pair are combined."""
    return a + b


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    first = tl.program_id(axis=0).to(tl.int64) * BLOCK
    offs = first + tl.arange(0, BLOCK)
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists, other=0.0)
    y = tl.load(y_ptr + offs, mask=exists, other=0.0)
    # Both operands in one block, x in the first row and y in the second.
    pairs = tl.reshape(tl.join(x, y), (2, BLOCK))
    total = tl.reduce(pairs, axis=0, combine_fn=plus)
    tl.store(out_ptr + offs, total, mask=exists)


def block_of(x: torch.Tensor) -> int:
    """Elements of a block: a power of two for each dtype, as all of their sizes are."""
    return BLOCK_BYTES // x.element_size()


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        block = block_of(x)
        programs = triton.cdiv(n, block)
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=block, num_warps=WARPS)
    return out
