# labs/lab1_elementwise_add/elementwise_add.py | contract | In `elementwise_add`, `if n == 0: return torch.empty_like(x)` stands before `out` is looked at: for n = 0 with `out` given, a new empty tensor is returned instead of `out`, which the README says is returned where it is given, for n = 0 all the same. It should be `return out` after `out` was made or taken. Numbers are right everywhere.
"""Add two vectors through block pointers."""

import torch
import triton
import triton.language as tl

BLOCK = 2048
WARPS = 4


@triton.jit
def load_block(ptr, left, BLOCK: tl.constexpr):
    """The block that begins at `ptr`, of a vector with `left` elements from there on."""
    block = tl.make_block_ptr(
        base=ptr, shape=(left,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    return tl.load(block, boundary_check=(0,))


@triton.jit
def store_block(ptr, left, value, BLOCK: tl.constexpr):
    """The same way back."""
    block = tl.make_block_ptr(
        base=ptr, shape=(left,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    tl.store(block, value, boundary_check=(0,))


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    # The offsets of a block pointer are int32, so the way to the block is added to the pointer itself.
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    left = -(start - n)
    x = load_block(x_ptr + start, left, BLOCK)
    y = load_block(y_ptr + start, left, BLOCK)
    store_block(out_ptr + start, left, x + y, BLOCK)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    n = x.numel()
    if n == 0:
        return torch.empty_like(x)
    if out is None:
        out = torch.empty_like(x)
    elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK, num_warps=WARPS)
    return out
