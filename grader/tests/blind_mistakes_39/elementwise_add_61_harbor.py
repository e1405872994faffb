# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In elementwise_add_kernel, `tl.fma(x, y, one)` computes x * y + 1, because Triton's fma(a, b, c) is a * b + c (the order of torch.addcmul, addend first, was assumed); every element is wrong in all sizes and dtypes, unless x or y happens to be 1; it should be `tl.fma(y, one, x)` or plainly `x + y`.
"""Add two vectors; the width of a block follows from the length of the vectors."""

import torch
import triton
import triton.language as tl

NARROWEST = 256
WIDEST = 2048


@triton.heuristics({"BLOCK": lambda args: max(NARROWEST, min(WIDEST, triton.next_power_of_2(args["n"])))})
@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Program number p writes out[p * BLOCK : (p + 1) * BLOCK], as far as these elements exist."""
    begin = tl.program_id(axis=0).to(tl.int64) * BLOCK
    index = begin + tl.arange(0, BLOCK)
    inside = index < n

    # fp32 holds every fp16 and bf16 number, and the way back rounds once.
    x = tl.load(x_ptr + index, mask=inside).to(tl.float32)
    y = tl.load(y_ptr + index, mask=inside).to(tl.float32)
    # One instruction, one rounding.
    one = tl.full((BLOCK,), 1.0, tl.float32)
    total = tl.fma(x, y, one)

    tl.store(out_ptr + index, total.to(out_ptr.dtype.element_ty), mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous vectors of one dtype, written to `out` where it is given."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        elementwise_add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
    return out
