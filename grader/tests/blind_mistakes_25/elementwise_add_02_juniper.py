# labs/lab1_elementwise_add/elementwise_add.py | corner | programs_for, `cdiv(n // STEPS, LANES)`: n // STEPS rounds down before cdiv rounds up, so for n = 1024 k + 1, 2 or 3 with k >= 1 (1025, 2^27 + 1) one program is missing and the last one to three elements are never written. It should be cdiv(n, LANES * STEPS).
"""x + y, in programs of a few short steps."""

import torch
import triton
import triton.language as tl
from triton import cdiv

LANES = 256  # numbers of one step: two warps, 16 bytes of fp32 for each thread
STEPS = 4  # steps of one program


@triton.jit
def add_steps(a_ptr, b_ptr, sum_ptr, n, LANES: tl.constexpr, STEPS: tl.constexpr):
    """Program k adds STEPS neighbouring pieces of LANES numbers each."""
    first = tl.program_id(0).to(tl.int64) * (STEPS * LANES)
    for step in tl.static_range(STEPS):
        i = first + step * LANES + tl.arange(0, LANES)
        ok = i < n
        a = tl.load(a_ptr + i, mask=ok)
        b = tl.load(b_ptr + i, mask=ok)
        tl.store(sum_ptr + i, a + b, mask=ok)


def programs_for(n: int) -> int:
    """A program takes STEPS pieces; a vector shorter than that needs one program as well."""
    return max(1, cdiv(n // STEPS, LANES))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype; the result goes to `out` if there is one."""
    result = torch.empty_like(x) if out is None else out
    n = x.numel()
    if n == 0:
        return result
    add_steps[(programs_for(n),)](x, y, result, n, LANES=LANES, STEPS=STEPS, num_warps=2)
    return result
