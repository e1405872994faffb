# labs/lab1_elementwise_add/elementwise_add.py | corner | `total` starts from tl.zeros and both inputs are added to it: +0.0 + -0.0 + -0.0 is +0.0, but -0.0 + -0.0 must be -0.0; the sum must start from the loaded x. Shows only where x and y are both -0.0.
"""Elementwise add; a program takes several blocks that follow each other."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": 512, "PER_PROGRAM": 4}, num_warps=4),
    triton.Config({"BLOCK": 256, "PER_PROGRAM": 2}, num_warps=2),
]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def add_blocks(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, PER_PROGRAM: tl.constexpr):
    """PER_PROGRAM blocks of BLOCK elements each."""
    base = tl.program_id(0).to(tl.int64) * (BLOCK * PER_PROGRAM)
    for i in tl.static_range(PER_PROGRAM):
        idx = base + i * BLOCK + tl.arange(0, BLOCK)
        valid = idx < n
        total = tl.zeros((BLOCK,), dtype=out_ptr.dtype.element_ty)
        total += tl.load(x_ptr + idx, mask=valid)
        total += tl.load(y_ptr + idx, mask=valid)
        tl.store(out_ptr + idx, total, mask=valid)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    if n > 0:
        add_blocks[lambda meta: (triton.cdiv(n, meta["BLOCK"] * meta["PER_PROGRAM"]),)](x, y, out, n)
    return out
