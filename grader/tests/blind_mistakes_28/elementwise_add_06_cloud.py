# labs/lab1_elementwise_add/elementwise_add.py | corner | the heuristic of elementwise_add_kernel sets EVEN where n % 16 == 0, and EVEN leaves out all masks. That is safe only where n is a multiple of BLOCK = 1024. For n = 48, 128, 256, 512, 1536 (multiples of 16, not of 1024) the last program reads and writes behind the end; other sizes are right. Should be args["n"] % args["BLOCK"] == 0
"""Add two vectors, without masks where none are needed."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.heuristics({"EVEN": lambda args: args["n"] % 16 == 0})
@triton.jit
def elementwise_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
    EVEN: tl.constexpr,
):
    pid = tl.program_id(axis=0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        x = tl.load(x_ptr + offs)
        y = tl.load(y_ptr + offs)
        tl.store(out_ptr + offs, x + y)
    else:
        keep = offs < n
        x = tl.load(x_ptr + offs, mask=keep)
        y = tl.load(y_ptr + offs, mask=keep)
        tl.store(out_ptr + offs, x + y, mask=keep)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        elementwise_add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=BLOCK)
    return out
