"""EXPECT PASS from elementwise_add: a device function makes the block pointers."""

import math

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def window(ptr, start, n, BLOCK: tl.constexpr):
    """Block pointer to elements start .. start + BLOCK - 1 of a vector that has n elements."""
    # The base moves, not the offset: offsets of a block pointer have 32 bits only.
    return tl.make_block_ptr(
        base=ptr + start, shape=(n - start,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK
    x = tl.load(window(x_ptr, start, n, BLOCK), boundary_check=(0,))
    y = tl.load(window(y_ptr, start, n, BLOCK), boundary_check=(0,))
    tl.store(window(out_ptr, start, n, BLOCK), x + y, boundary_check=(0,))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Sum of two vectors; `out` is written if it is given."""
    result = out if out is not None else torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n = x.shape[0]
    n_programs = math.ceil(n / BLOCK)
    if n_programs > 0:
        add_kernel[(n_programs,)](x, y, result, n, BLOCK=BLOCK, num_warps=4)
    return result
