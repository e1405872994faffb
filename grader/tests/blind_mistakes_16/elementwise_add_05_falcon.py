# labs/lab1_elementwise_add/elementwise_add.py | corner | The heuristic FAST, which drops all masks, is `args["n"] % 16 == 0`. For n that is a multiple of 16 but not of BLOCK the last program reads and writes past the end; it should be `args["n"] % args["BLOCK"] == 0`.
"""Add two vectors: one program, one block of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.heuristics({"FAST": lambda args: args["n"] % 16 == 0})
@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
    FAST: tl.constexpr,
):
    """out[i] = x[i] + y[i]; FAST chooses the version with the widest loads."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    offs = start + tl.arange(0, BLOCK)
    if FAST:
        both = tl.load(x_ptr + offs) + tl.load(y_ptr + offs)
        tl.store(out_ptr + offs, both)
    else:
        mask = offs < n
        both = tl.load(x_ptr + offs, mask=mask) + tl.load(y_ptr + offs, mask=mask)
        tl.store(out_ptr + offs, both, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        grid = (triton.cdiv(n, BLOCK),)
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)
    return out
