# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) the second tile of a program uses the mask of the first (`live = lo < n` in the loads and the store at hi); must be hi < n. Shows wherever n is not a multiple of 1024, or the last program has one tile only: elements past the end are read and written. (2) every dtype of 2 bytes is rounded to fp16 (`.to(tl.float16)` under HALF); must be the dtype of out. Shows in bf16 only: large values become inf, small ones lose digits or vanish.
"""Vector add with two tiles a program: four loads are in flight before the first addition."""

import torch
import triton
import triton.language as tl

BLOCK = 512


@triton.jit
def plus(a, b, HALF: tl.constexpr):
    """a + b, rounded once: 16-bit numbers are added in fp32."""
    if HALF:
        total = (a.to(tl.float32) + b.to(tl.float32)).to(tl.float16)
    else:
        total = a + b
    return total


@triton.jit
def add_two_tiles(x_ptr, y_ptr, out_ptr, n, HALF: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    lo = pid * (2 * BLOCK) + tl.arange(0, BLOCK)
    hi = lo + BLOCK
    live = lo < n
    x0 = tl.load(x_ptr + lo, mask=live)
    x1 = tl.load(x_ptr + hi, mask=live)
    y0 = tl.load(y_ptr + lo, mask=live)
    y1 = tl.load(y_ptr + hi, mask=live)
    tl.store(out_ptr + lo, plus(x0, y0, HALF), mask=live)
    tl.store(out_ptr + hi, plus(x1, y1, HALF), mask=live)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y into `out`, or into a new tensor."""
    assert x.shape == y.shape and x.dtype == y.dtype, f"{x.shape} {x.dtype} and {y.shape} {y.dtype}"
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        programs = triton.cdiv(n, 2 * BLOCK)
        add_two_tiles[(programs,)](x, y, out, n, HALF=x.element_size() == 2, BLOCK=BLOCK)
    return out
