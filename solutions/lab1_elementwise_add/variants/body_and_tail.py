"""EXPECT PASS from elementwise_add: whole blocks without a mask, and a kernel for the rest.

Most of the vector consists of whole blocks, and they need no mask at all. What is left, fewer than BLOCK
elements, is done by a second, tiny launch.
"""

import torch
import triton
import triton.language as tl

# dtype -> (elements of a block, warps)
SHAPES: dict[torch.dtype, tuple[int, int]] = {
    torch.float32: (1024, 4),
    torch.float16: (2048, 4),
    torch.bfloat16: (2048, 4),
}


@triton.jit
def body_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    """Whole blocks: every lane exists."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    lanes = tl.max_contiguous(tl.arange(0, BLOCK), BLOCK)
    x = tl.load(x_ptr + start + lanes)
    y = tl.load(y_ptr + start + lanes)
    tl.store(out_ptr + start + lanes, x + y)


@triton.jit
def tail_kernel(x_ptr, y_ptr, out_ptr, start, n, BLOCK: tl.constexpr):
    """The elements from start to n - 1, fewer than BLOCK."""
    offs = tl.cast(start, tl.int64) + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    y = tl.load(y_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, x + y, mask=offs < n)


def elementwise_add(
    x: "torch.Tensor",
    y: "torch.Tensor",
    *,
    out: "torch.Tensor | None" = None,
) -> "torch.Tensor":
    """x + y."""
    destination = torch.empty_like(x) if out is None else out
    block, warps = SHAPES[x.dtype]
    n = len(x)
    whole = n // block
    done = whole * block
    if whole:
        body_kernel[(whole,)](x, y, destination, BLOCK=block, num_warps=warps)
    if done < n:
        tail_kernel[(1,)](x, y, destination, done, n, BLOCK=block, num_warps=warps)
    return destination
