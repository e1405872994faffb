# labs/lab1_elementwise_add/elementwise_add.py | error | elementwise_add passes BLOCK=BLOCK in the launch although the configs of @triton.autotune set BLOCK as well, so every launch raises (conflicting meta-parameter / multiple values for BLOCK). BLOCK should be left out of the launch and the grid should take it from the lambda's meta alone.
"""Add two vectors. The width of a block is tuned."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


def candidates():
    found = []
    for block in (512, 1024, 2048, 4096):
        for warps in (4, 8):
            # at least four elements for a thread
            if block >= warps * 32 * 4:
                found.append(triton.Config({"BLOCK": block}, num_warps=warps))
    return found


@triton.autotune(configs=candidates(), key=["n"])
@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)
    return out
