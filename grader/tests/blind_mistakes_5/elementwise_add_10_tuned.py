# labs/lab1_elementwise_add/elementwise_add.py | honest | Autotuned, with a heuristic EVEN that removes the masks; destination is the first argument.
"""Vector addition, autotuned; where the block divides n, a heuristic compiles the mask away."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=8),
    triton.Config({"BLOCK": 512}, num_warps=4),
]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def elementwise_add_kernel(dst, lhs, rhs, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    """dst[i] = lhs[i] + rhs[i]."""
    base = tl.program_id(axis=0).to(tl.int64) * BLOCK
    lane = tl.arange(0, BLOCK)
    if EVEN:
        tl.store(dst + base + lane, tl.load(lhs + base + lane) + tl.load(rhs + base + lane))
    else:
        left_over = n - base
        ok = lane < left_over
        tl.store(dst + base + lane, tl.load(lhs + base + lane, mask=ok) + tl.load(rhs + base + lane, mask=ok), mask=ok)


def _programs(n):
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    dst = out if out is not None else torch.empty_like(x)
    if (n := x.numel()) > 0:
        elementwise_add_kernel[_programs(n)](dst, x, y, n)
    return dst
