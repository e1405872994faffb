# lab1/elementwise_add.py | honest | - | unusual: block pointers with boundary_check instead of masks; the base pointers are moved with int64 and the shape is what is left; two tiles per program by tl.static_range; block width from a heuristic
"""Add two vectors through block pointers."""

import torch
import triton
import triton.language as tl


@triton.heuristics({"BLOCK": lambda args: 256 if args["n"] < 4096 else 1024})
@triton.jit
def add_block_ptr(x_ptr, y_ptr, out_ptr, n, out_stride, BLOCK: tl.constexpr, PER: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * (BLOCK * PER)
    left = n - first
    xb = tl.make_block_ptr(x_ptr + first, shape=(left,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,))
    yb = tl.make_block_ptr(y_ptr + first, shape=(left,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,))
    ob = tl.make_block_ptr(out_ptr + first * out_stride, shape=(left,), strides=(out_stride,), offsets=(0,), block_shape=(BLOCK,), order=(0,))
    for _ in tl.static_range(PER):
        tl.store(ob, tl.load(xb, boundary_check=(0,)) + tl.load(yb, boundary_check=(0,)), boundary_check=(0,))
        xb = tl.advance(xb, (BLOCK,))
        yb = tl.advance(yb, (BLOCK,))
        ob = tl.advance(ob, (BLOCK,))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y, elementwise."""
    result = torch.empty_like(x) if out is None else out
    n = x.size(0)
    if n:
        add_block_ptr[lambda meta: (triton.cdiv(n, meta["BLOCK"] * meta["PER"]),)](x, y, result, n, result.stride(0), PER=2)
    return result
