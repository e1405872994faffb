# labs/lab1_elementwise_add/elementwise_add.py | contract | In elementwise_add, without out= the result is torch.empty(x.shape, device=x.device), which is always fp32 (the default dtype), so fp16 and bf16 inputs give an fp32 tensor; it should be torch.empty_like(x).
"""Autotuned x + y."""

import torch
import triton
import triton.language as tl


def _configs():
    return [triton.Config({"BLOCK": b}, num_warps=w) for b, w in [(4096, 8), (2048, 4), (1024, 4)]]


@triton.autotune(configs=_configs(), key=["n"])
@triton.jit
def add_kernel(a, b, c, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = i < n
    tl.store(c + i, tl.load(a + i, mask=ok) + tl.load(b + i, mask=ok), mask=ok)


def _grid_for(n: int):
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """out = x + y; contiguous vectors, all of one dtype. A vector without elements needs no launch."""
    assert x.shape == y.shape, f"{x.shape} and {y.shape}"
    result = torch.empty(x.shape, device=x.device) if out is None else out
    n = x.numel()
    if n:
        add_kernel[_grid_for(n)](x, y, result, n)
    return result
