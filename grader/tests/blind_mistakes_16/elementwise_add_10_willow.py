# labs/lab1_elementwise_add/elementwise_add.py | right | right
"""Add two vectors with block pointers."""

import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((1024, 4), (2048, 8), (4096, 8))]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Each pointer is moved to the start of the block first; behind it are n - start elements."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    left = -start + n
    x_block = tl.make_block_ptr(x_ptr + start, (left,), (1,), (0,), (BLOCK,), (0,))
    y_block = tl.make_block_ptr(y_ptr + start, (left,), (1,), (0,), (BLOCK,), (0,))
    out_block = tl.make_block_ptr(out_ptr + start, (left,), (1,), (0,), (BLOCK,), (0,))
    x = tl.load(x_block, boundary_check=(0,))
    y = tl.load(y_block, boundary_check=(0,))
    tl.store(out_block, x + y, boundary_check=(0,))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        elementwise_add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
    return out
