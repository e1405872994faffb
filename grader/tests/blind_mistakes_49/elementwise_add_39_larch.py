# labs/lab1_elementwise_add/elementwise_add.py | error | `elementwise_add_kernel` passes `start`, made with `tl.program_id(axis=0).to(tl.int64) * BLOCK`, to `offsets=(start,)` of `tl.make_block_ptr` in `block_of`, which takes int32 offsets only ("Block pointers only support 32 bit offsets"), so the kernel does not compile, for any n > 0. It should move the base: `base=ptr + start, shape=(n - start,), offsets=(0,)`.
"""Add two vectors with block pointers: Triton checks the bounds, no mask is written."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def block_of(ptr, start, n, BLOCK: tl.constexpr):
    """The block of a contiguous (n,) tensor that begins at element `start`."""
    return tl.make_block_ptr(
        base=ptr,
        shape=(n,),
        strides=(1,),
        offsets=(start,),
        block_shape=(BLOCK,),
        order=(0,),
    )


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    # In int32 the product would wrap around from 2^31 elements on.
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    x = tl.load(block_of(x_ptr, start, n, BLOCK), boundary_check=(0,))
    y = tl.load(block_of(y_ptr, start, n, BLOCK), boundary_check=(0,))
    tl.store(block_of(out_ptr, start, n, BLOCK), x + y, boundary_check=(0,))


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
