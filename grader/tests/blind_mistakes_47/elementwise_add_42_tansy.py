# labs/lab1_elementwise_add/elementwise_add.py | corner | The heuristic `"WHOLE": lambda args: args["n"] % args["BLOCK"] == 0` drops the masks, but a program owns BLOCK * STEPS = 4096 elements; it should be `args["n"] % (args["BLOCK"] * args["STEPS"]) == 0`. Where n is a multiple of 1024 and not of 4096 (n = 1024, 2048), the last program reads and writes past the end; all other sizes are right.
"""Add two vectors: a program takes several blocks in a row, without masks where none is needed."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
STEPS = 4


@triton.jit
def _add_block(x_ptr, y_ptr, out_ptr, offs):
    tl.store(out_ptr + offs, tl.load(x_ptr + offs) + tl.load(y_ptr + offs))


@triton.jit
def _add_block_masked(x_ptr, y_ptr, out_ptr, offs, n):
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


@triton.heuristics({"WHOLE": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
    STEPS: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """out[i] = x[i] + y[i]; a program owns STEPS neighbouring blocks of BLOCK elements.

    The steps are unrolled, so that the loads of one step do not wait for the store of the step before. Where all
    blocks are WHOLE there is nothing to mask.
    """
    start = tl.program_id(axis=0).to(tl.int64) * (BLOCK * STEPS)
    lanes = tl.arange(0, BLOCK)
    for step in tl.static_range(STEPS):
        offs = start + step * BLOCK + lanes
        if WHOLE:
            _add_block(x_ptr, y_ptr, out_ptr, offs)
        else:
            _add_block_masked(x_ptr, y_ptr, out_ptr, offs, n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        grid = (triton.cdiv(n, BLOCK * STEPS),)
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK, STEPS=STEPS)
    return out
