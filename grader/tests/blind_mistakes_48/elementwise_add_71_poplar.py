# labs/lab1_elementwise_add/elementwise_add.py | right | Unusual: block pointers with a base that moves in 64 bits, offset 0, and the remaining length as shape, so that boundary_check takes the place of the mask; no offset of 32 bits can overflow.
"""Add two vectors through block pointers: a window of each vector, with the end of the vector as its edge."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    # Offsets of a block pointer have 32 bits. So its base moves, in 64 bits, and its offset stays 0.
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    left = n - start  # elements from here to the end of the vectors
    x_window = tl.make_block_ptr(
        base=x_ptr + start,
        shape=(left,),
        strides=(1,),
        offsets=(0,),
        block_shape=(BLOCK,),
        order=(0,),
    )
    y_window = tl.make_block_ptr(
        base=y_ptr + start,
        shape=(left,),
        strides=(1,),
        offsets=(0,),
        block_shape=(BLOCK,),
        order=(0,),
    )
    out_window = tl.make_block_ptr(
        base=out_ptr + start,
        shape=(left,),
        strides=(1,),
        offsets=(0,),
        block_shape=(BLOCK,),
        order=(0,),
    )
    x = tl.load(x_window, boundary_check=(0,))
    y = tl.load(y_window, boundary_check=(0,))
    tl.store(out_window, x + y, boundary_check=(0,))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
