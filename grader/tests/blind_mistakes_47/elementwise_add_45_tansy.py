# labs/lab1_elementwise_add/elementwise_add.py | contract | In `elementwise_add`, `out = torch.empty(n, device=x.device)` allocates float32 whatever the dtype of x is; it should be `torch.empty_like(x)`. Where no `out` is given and x is fp16 or bf16 (n = 1009, fp16), the numbers are right, rounded to the dtype of x before the store, but the returned tensor is not like x: its dtype is float32.
"""Add two vectors with block pointers: the compiler checks the end of the vectors."""

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
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1.

    The offset inside a block pointer has 32 bits. So the base moves to the first element of the block, in int64, and
    the vector that the block pointer sees is what is left from there on.
    """
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    left = n - start
    x_block = tl.make_block_ptr(
        x_ptr + start, shape=(left,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    y_block = tl.make_block_ptr(
        y_ptr + start, shape=(left,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    out_block = tl.make_block_ptr(
        out_ptr + start, shape=(left,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    x = tl.load(x_block, boundary_check=(0,))
    y = tl.load(y_block, boundary_check=(0,))
    tl.store(out_block, (x + y).to(out_ptr.dtype.element_ty), boundary_check=(0,))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    n = x.numel()
    if out is None:
        out = torch.empty(n, device=x.device)
    if n > 0:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
