# labs/lab1_elementwise_add/elementwise_add.py | error | the kernel reads the module's plain ints LANES and UNROLL; a compiled kernel may use only globals that are tl.constexpr, so this does not compile ("Cannot access global variable"). Must be parameters of the kernel that are tl.constexpr, or `LANES = tl.constexpr(512)`. Shows in each compiled call; the interpreter does not mind.
"""Add two vectors: a program adds UNROLL neighbouring blocks of LANES elements, all loads before the stores."""

import torch
import triton
import triton.language as tl

LANES = 512
UNROLL = 4


@triton.jit
def unrolled_add_kernel(x_ptr, y_ptr, out_ptr, n):
    base = tl.program_id(axis=0).to(tl.int64) * (LANES * UNROLL)
    lane = tl.arange(0, LANES)
    for step in tl.static_range(UNROLL):
        where = base + step * LANES + lane
        valid = where < n
        total = tl.load(x_ptr + where, mask=valid) + tl.load(y_ptr + where, mask=valid)
        tl.store(out_ptr + where, total, mask=valid)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous vectors of one dtype."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        unrolled_add_kernel[(triton.cdiv(n, LANES * UNROLL),)](x, y, out, n)
    return out
