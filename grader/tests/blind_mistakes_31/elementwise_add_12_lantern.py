# labs/lab1_elementwise_add/elementwise_add.py | right | right
"""Add two vectors; the mask is compiled away where every block is full."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.heuristics({"FULL": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, FULL: tl.constexpr):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    shift = tl.program_id(axis=0).to(tl.int64) * BLOCK
    x_ptr += shift
    y_ptr += shift
    out_ptr += shift
    lane = tl.arange(0, BLOCK)
    if FULL:
        tl.store(out_ptr + lane, tl.load(x_ptr + lane) + tl.load(y_ptr + lane))
    else:
        exists = shift + lane < n
        x = tl.load(x_ptr + lane, mask=exists)
        y = tl.load(y_ptr + lane, mask=exists)
        tl.store(out_ptr + lane, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
