# labs/lab1_elementwise_add/elementwise_add.py | error | In elementwise_add_kernel the block pointers get `offsets=(start,)` with `start = tl.program_id(axis=0).to(tl.int64) * BLOCK`; tl.make_block_ptr takes 32-bit offsets only, so it does not compile, for any n > 0. Right would be int64 in the base: `base=x_ptr + start, shape=(n - start,), offsets=(0,)`.
"""Add two vectors with block pointers: the bounds are checked by the load and the store."""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    # In int64, because a long vector has more than 2^31 elements.
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    x_block = tl.make_block_ptr(
        base=x_ptr, shape=(n,), strides=(1,), offsets=(start,), block_shape=(BLOCK,), order=(0,)
    )
    y_block = tl.make_block_ptr(
        base=y_ptr, shape=(n,), strides=(1,), offsets=(start,), block_shape=(BLOCK,), order=(0,)
    )
    out_block = tl.make_block_ptr(
        base=out_ptr, shape=(n,), strides=(1,), offsets=(start,), block_shape=(BLOCK,), order=(0,)
    )
    x = tl.load(x_block, boundary_check=(0,))
    y = tl.load(y_block, boundary_check=(0,))
    tl.store(out_block, x + y, boundary_check=(0,))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n != 0:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
