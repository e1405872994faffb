# labs/lab1_elementwise_add/elementwise_add.py | corner | the heuristic drops the mask where `n % 16 == 0`; must be `n % BLOCK == 0`. Shows where n is a multiple of 16 and not of 2048: the last block reads and writes past the end.
"""Add two vectors; a vector of convenient length needs no mask at all."""

import torch
import triton
import triton.language as tl


def _is_even(args):
    """Aligned sizes get the kernel without masks, whose loads are 16 bytes wide."""
    return args["n"] % 16 == 0


@triton.heuristics({"EVEN": _is_even})
@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        x = tl.load(x_ptr + offs)
        y = tl.load(y_ptr + offs)
        tl.store(out_ptr + offs, x + y)
    else:
        inside = offs < n
        x = tl.load(x_ptr + offs, mask=inside)
        y = tl.load(y_ptr + offs, mask=inside)
        tl.store(out_ptr + offs, x + y, mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=2048, num_warps=8)
    return out
