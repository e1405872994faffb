# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | The second block pointer `y_block` is made from `x_ptr` (copy and paste), so the result is x + x. It must be `y_ptr + start`.
"""Adds two vectors. Done with block pointers, as in the Triton docs."""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i], one block of BLOCK elements for each program."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    left = n - start  # block pointers count in int32, so each starts at its own block
    x_block = tl.make_block_ptr(x_ptr + start, shape=(left,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,))
    y_block = tl.make_block_ptr(x_ptr + start, shape=(left,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,))
    o_block = tl.make_block_ptr(out_ptr + start, shape=(left,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,))
    a = tl.load(x_block, boundary_check=(0,))
    b = tl.load(y_block, boundary_check=(0,))
    tl.store(o_block, a + b, boundary_check=(0,))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous vectors; the sum goes to `out` where one is given."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
