# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) in elementwise_add, `rounds = max(1, n // (programs * BLOCK))` rounds down, so the elements after the last whole round stay unwritten for n > 528 * 1024 that is no multiple of it (2^20 + 3, and 2^28); should be triton.cdiv(n, programs * BLOCK); (2) in elementwise_add_kernel, `total = tl.zeros(...)` is where the sum starts, so -0.0 + -0.0 gives 0.0 instead of -0.0 (values at the edges, every dtype); should be the sum of the two loads alone
"""Add two vectors with a fixed number of programs that take turns."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
PROGRAMS = 528


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, rounds, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0).to(tl.int64)
    hop = tl.num_programs(axis=0).to(tl.int64) * BLOCK
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    for turn in range(rounds):
        live = offs < n
        total = tl.zeros((BLOCK,), dtype=out_ptr.dtype.element_ty)
        total += tl.load(x_ptr + offs, mask=live)
        total += tl.load(y_ptr + offs, mask=live)
        tl.store(out_ptr + offs, total, mask=live)
        offs += hop


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y; the programs sweep over the vector together."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    programs = min(PROGRAMS, triton.cdiv(n, BLOCK))
    rounds = max(1, n // (programs * BLOCK))
    elementwise_add_kernel[(programs,)](x, y, out, n, rounds, BLOCK=BLOCK)
    return out
