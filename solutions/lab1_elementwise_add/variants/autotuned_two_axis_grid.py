"""EXPECT PASS from elementwise_add: tuned, on two axes, and the last programs do nothing."""

from typing import Any, Dict, Tuple, Union

import torch
import triton
import triton.language as tl

WIDTH = 4096  # blocks along axis 0; axis 1 counts rows of blocks

CANDIDATES = [
    triton.Config({"BLOCK": 1 << log}, num_warps=warps)
    for log in range(10, 13)
    for warps in (4, 8)
    if (1 << log) // (32 * warps) >= 4
]


@triton.autotune(configs=CANDIDATES, key=["n"])
@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    block = tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)
    offs = block * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    y = tl.load(y_ptr + offs, mask=offs < n, other=0.0)
    tl.store(out_ptr + offs, x + y, mask=offs < n)


def elementwise_add(
    x: torch.Tensor, y: torch.Tensor, *, out: Union[torch.Tensor, None] = None
) -> torch.Tensor:
    """The sum of two contiguous vectors of one dtype."""
    if out is None:
        out = torch.empty_like(x)
    n: int = x.numel()

    def grid(meta: Dict[str, Any]) -> Tuple[int, int]:
        blocks = triton.cdiv(n, meta["BLOCK"])
        return min(blocks, WIDTH), triton.cdiv(blocks, WIDTH)

    if n > 0:
        elementwise_add_kernel[grid](x, y, out, n)
    return out
