# labs/lab1_elementwise_add/elementwise_add.py | corner | The heuristic `"WHOLE": lambda args: args["n"] % args["BLOCK"] == 0` of `elementwise_add_kernel` ignores that a program owns `BLOCK * STEPS` elements; it should be `args["n"] % (args["BLOCK"] * args["STEPS"]) == 0`. If n is a multiple of 1024 but not of 4096 (n = 1024, 2048, 3072, 5120, ...), the last program loads and stores past the end without a mask: OUT_OF_BOUNDS; all other n are right.
"""Add two vectors: a program walks over a few blocks, without masks where all of them are whole."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
STEPS = 4


@triton.heuristics({"WHOLE": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
    STEPS: tl.constexpr,
    WHOLE: tl.constexpr,  # no block is cut off by the end of the vectors
):
    """out[i] = x[i] + y[i]; program pid owns STEPS blocks of BLOCK elements, one behind the other."""
    pid = tl.program_id(axis=0).to(tl.int64)
    first = pid * (BLOCK * STEPS)
    lanes = tl.arange(0, BLOCK)

    for step in tl.static_range(STEPS):
        offs = first + step * BLOCK + lanes
        if WHOLE:
            x = tl.load(x_ptr + offs)
            y = tl.load(y_ptr + offs)
            tl.store(out_ptr + offs, x + y)
        else:
            exists = offs < n
            x = tl.load(x_ptr + offs, mask=exists)
            y = tl.load(y_ptr + offs, mask=exists)
            tl.store(out_ptr + offs, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)

    n = x.numel()

    def grid(meta):
        return (triton.cdiv(n, meta["BLOCK"] * meta["STEPS"]),)

    if n > 0:
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK, STEPS=STEPS)
    return out
