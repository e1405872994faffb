# labs/lab1_elementwise_add/elementwise_add.py | right | Block pointers with boundary_check in place of offsets and a mask; each block pointer starts at the program's own first element (int64), its shape is the number of elements left, and its offset is 0.
"""Add two vectors: one program, one block of the result."""

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
    # Offsets of block pointers are int32, so the 64-bit part goes into the base.
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    left = n - start

    x_win = tl.make_block_ptr(
        base=x_ptr + start, shape=(left,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    y_win = tl.make_block_ptr(
        base=y_ptr + start, shape=(left,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    out_win = tl.make_block_ptr(
        base=out_ptr + start, shape=(left,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )

    total = tl.load(x_win, boundary_check=(0,)) + tl.load(y_win, boundary_check=(0,))
    tl.store(out_win, total, boundary_check=(0,))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    if (n := x.numel()) > 0:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK, num_warps=4)
    return out
