# labs/lab1_elementwise_add/elementwise_add.py | corner | The heuristic EVEN tests n % 16 == 0, but the branch without masks is right only where n is a multiple of BLOCK: for n that are multiples of 16 and not of BLOCK the last program loads and stores past the end of x, y and out. It should be args["n"] % args["BLOCK"] == 0.
"""Vector addition with an autotuned block, and a path without masks."""

import torch
import triton
import triton.language as tl


def candidates():
    """Blocks to try; a thread moves 8 or 16 elements."""
    pairs = [(1024, 4), (2048, 4), (2048, 8), (4096, 8)]
    return [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in pairs]


@triton.autotune(configs=candidates(), key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % 16 == 0})
@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    """out[i] = x[i] + y[i] for the BLOCK elements of this program."""
    begin = tl.program_id(axis=0).to(tl.int64) * BLOCK
    i = begin + tl.arange(0, BLOCK)
    if EVEN:
        # 16-byte accesses throughout, and no comparisons.
        left = tl.load(x_ptr + i)
        right = tl.load(y_ptr + i)
        tl.store(out_ptr + i, left + right)
    else:
        alive = i < n
        left = tl.load(x_ptr + i, mask=alive)
        right = tl.load(y_ptr + i, mask=alive)
        tl.store(out_ptr + i, left + right, mask=alive)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y, written to `out` where one is given."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        elementwise_add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
    return out
