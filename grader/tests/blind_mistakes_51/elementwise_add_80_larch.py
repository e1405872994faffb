# labs/lab1_elementwise_add/elementwise_add.py | contract | In destination `torch.empty(x.shape, device=x.device)` is fp32 for every x; it should be `torch.empty_like(x)` (dtype=x.dtype). Without out, fp16 and bf16 inputs give a result of the wrong dtype, although its numbers are right; with out or in fp32 all is right.
"""Add two vectors: a program owns a span of four blocks, which an unrolled loop walks through."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
STEPS = 4


@triton.jit
def span_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
    STEPS: tl.constexpr,
):
    """Program pid owns elements pid * STEPS * BLOCK to (pid + 1) * STEPS * BLOCK - 1."""
    span = tl.program_id(axis=0).to(tl.int64) * (STEPS * BLOCK)
    lanes = tl.arange(0, BLOCK)
    for step in tl.static_range(STEPS):
        offs = span + step * BLOCK + lanes
        exists = offs < n
        x = tl.load(x_ptr + offs, mask=exists)
        y = tl.load(y_ptr + offs, mask=exists)
        tl.store(out_ptr + offs, x + y, mask=exists)


def destination(x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    """Where the sum goes: `out`, or a new vector on the device of x."""
    if out is not None:
        return out
    return torch.empty(x.shape, device=x.device)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    result = destination(x, out)
    n = x.numel()
    if n > 0:
        grid = (triton.cdiv(n, STEPS * BLOCK),)
        span_add_kernel[grid](x, y, result, n, BLOCK=BLOCK, STEPS=STEPS, num_warps=4)
    return result
