# labs/lab1_elementwise_add/elementwise_add.py | corner | rounds is computed with round(), to the nearest, and must be rounded up (triton.cdiv): where n / (64 * 512) is above 1 and has a fraction below one half, for example n = 40000 or 70000, the last elements are not written; all smaller n are right.
"""Vector addition with a fixed number of programs that walk over the data."""

import torch
import triton
import triton.language as tl

BLOCK = 512
PROGRAMS = 64


@triton.jit
def walk_kernel(x_ptr, y_ptr, out_ptr, n, rounds, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    for step in range(rounds):
        i = (step * PROGRAMS + pid) * BLOCK + lanes
        ok = i < n
        a = tl.load(x_ptr + i, mask=ok)
        b = tl.load(y_ptr + i, mask=ok)
        tl.store(out_ptr + i, a + b, mask=ok)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """out = x + y."""
    result = out if out is not None else torch.empty_like(x)
    n = x.numel()
    if n:
        rounds = max(1, round(n / (PROGRAMS * BLOCK)))
        walk_kernel[(PROGRAMS,)](x, y, result, n, rounds, PROGRAMS=PROGRAMS, BLOCK=BLOCK, num_warps=4)
    return result
