# labs/lab1_elementwise_add/elementwise_add.py | corner | In the heuristics of `elementwise_add_kernel`, `"WHOLE": lambda args: args["n"] % 16 == 0` should be `args["n"] % args["BLOCK"] == 0`. With n a multiple of 16 but not of BLOCK = 1024 (48, 128, 256, 512, 1536, ...) both loads and the store go without a mask past the end: out of bounds. Other sizes are right.
"""Add two vectors; blocks that are whole take a path of their own, chosen when the kernel is compiled."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def add_whole(x_ptr, y_ptr, out_ptr, offs):
    """One block, all lanes."""
    x = tl.load(x_ptr + offs)
    y = tl.load(y_ptr + offs)
    tl.store(out_ptr + offs, x + y)


@triton.jit
def add_part(x_ptr, y_ptr, out_ptr, offs, exists):
    """One block, the lanes that exist."""
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


@triton.heuristics({"WHOLE": lambda args: args["n"] % 16 == 0})
@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    offs = start + tl.arange(0, BLOCK)
    if WHOLE:
        add_whole(x_ptr, y_ptr, out_ptr, offs)
    else:
        add_part(x_ptr, y_ptr, out_ptr, offs, offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        elementwise_add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=BLOCK)
    return out
