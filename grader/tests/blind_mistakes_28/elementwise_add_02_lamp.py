# labs/lab1_elementwise_add/elementwise_add.py | error | elementwise_add_kernel stores with tl.store(out_ptr + idx, inside, x + y): value and mask are in the wrong order, so the block of floats is taken as the mask. Triton refuses it when it compiles (a mask must be boolean), in every case with n > 0. Should be tl.store(out_ptr + idx, x + y, inside)
"""Elementwise addition of two vectors."""

import torch
import triton
import triton.language as tl

BLOCK = 2048
WARPS = 8


@triton.jit
def elementwise_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
):
    pid = tl.program_id(0).to(tl.int64)
    idx = pid * BLOCK + tl.arange(0, BLOCK)
    inside = idx < n

    x = tl.load(x_ptr + idx, inside)
    y = tl.load(y_ptr + idx, inside)
    tl.store(out_ptr + idx, inside, x + y)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.size(0)
    if n == 0:
        return out

    def grid(meta):
        return (triton.cdiv(n, meta["BLOCK"]),)

    elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK, num_warps=WARPS)
    return out
