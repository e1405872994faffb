# labs/lab1_elementwise_add/elementwise_add.py | error | In elementwise_add_kernel, `tl.join(left, right)` has the shape (HALF, 2), because join adds its new axis at the end, while the pointers `out_ptr + place` have the shape (2, HALF); the store cannot broadcast one to the other, so the kernel neither compiles nor runs, for every n > 0; it should be `tl.trans(tl.join(left, right))`, or `place` should be built with the lanes along the first axis.
"""Add two vectors: a program adds two neighbouring half blocks and stores them at once."""

import torch
import triton
import triton.language as tl

HALF = 1024


@triton.jit
def sum_at(x_ptr, y_ptr, offs, n):
    """x + y at these offsets; what lies past the end is not touched."""
    keep = offs < n
    return tl.load(x_ptr + offs, mask=keep) + tl.load(y_ptr + offs, mask=keep)


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, HALF: tl.constexpr):
    base = tl.program_id(axis=0).to(tl.int64) * (2 * HALF)
    lane = tl.arange(0, HALF)

    # Four loads that do not wait for each other.
    left = sum_at(x_ptr, y_ptr, base + lane, n)
    right = sum_at(x_ptr, y_ptr, base + HALF + lane, n)

    side = tl.arange(0, 2)
    place = base + side[:, None] * HALF + lane[None, :]
    tl.store(out_ptr + place, tl.join(left, right), mask=place < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype."""
    if out is None:
        out = torch.empty_like(x)
    n = x.shape[0]
    if n != 0:
        grid = (triton.cdiv(n, 2 * HALF),)
        elementwise_add_kernel[grid](x, y, out, n, HALF=HALF)
    return out
