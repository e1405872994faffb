# labs/lab1_elementwise_add/elementwise_add.py | right | right (a heuristic decides whether all blocks are whole; only otherwise the kernel is compiled with a mask)
"""Add two vectors: a kernel without a mask where all blocks are whole, else one with a mask."""

import torch
import triton
import triton.language as tl

NARROWEST = 256
WIDEST = 2048


@triton.heuristics({"WHOLE": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, WHOLE: tl.constexpr):
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if WHOLE:
        x = tl.load(x_ptr + offs)
        y = tl.load(y_ptr + offs)
        tl.store(out_ptr + offs, x + y)
    else:
        some = offs < n
        x = tl.load(x_ptr + offs, mask=some)
        y = tl.load(y_ptr + offs, mask=some)
        tl.store(out_ptr + offs, x + y, mask=some)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        width = max(NARROWEST, min(WIDEST, triton.next_power_of_2(n)))
        elementwise_add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=width)
    return out
