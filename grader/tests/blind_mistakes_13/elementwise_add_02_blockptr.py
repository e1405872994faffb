# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | The block pointer of y has the base `y_ptr` and should have `y_ptr + start`: every program adds the first block of y, so all elements after the first block are wrong.
"""Vector addition with block pointers."""

import torch
import triton
import triton.language as tl

BLOCK = 512


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i], one block of BLOCK elements per program."""
    # block pointers keep their offsets in 32 bits, therefore the 64-bit start goes into the base
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    left = tl.cast(n, tl.int64) - start  # elements from here to the end of the vector

    x_block = tl.make_block_ptr(
        base=x_ptr + start, shape=(left,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    y_block = tl.make_block_ptr(
        base=y_ptr, shape=(left,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    out_block = tl.make_block_ptr(
        base=out_ptr + start, shape=(left,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )

    x = tl.load(x_block, boundary_check=(0,))
    y = tl.load(y_block, boundary_check=(0,))
    tl.store(out_block, x + y, boundary_check=(0,))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.shape[0]
    if n == 0:
        return out
    elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
