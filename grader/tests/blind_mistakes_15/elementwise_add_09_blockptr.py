# labs/lab1_elementwise_add/elementwise_add.py | error | The kernel loads from block pointers with mask=: Triton refuses that (mask and other cannot be given for a block pointer). Both loads need boundary_check=(0,), as the store has.
"""Add two vectors by block pointers: one program, one block of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def block_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i]; the three block pointers begin at the program's first element."""
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
    inside = tl.arange(0, BLOCK) < left
    x = tl.load(x_block, mask=inside)
    y = tl.load(y_block, mask=inside)
    tl.store(out_block, x + y, boundary_check=(0,))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        block_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
