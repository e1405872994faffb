# labs/lab1_elementwise_add/elementwise_add.py | error | the block is an equal share of n (`share = max(128, triton.cdiv(n, PROGRAMS))`), and tl.arange takes it as its length; must be a power of two (and not above 2**20), such as triton.next_power_of_2 of a bounded share. Shows for n > 8192, unless the share happens to be a power of two: Triton does not compile the kernel.
"""Add two vectors with a fixed number of programs, each of which owns an equal share."""

import torch
import triton
import triton.language as tl

PROGRAMS = 64


@triton.jit
def add_share(x_ptr, y_ptr, out_ptr, n, SHARE: tl.constexpr):
    """Program i owns elements i * SHARE to (i + 1) * SHARE - 1, the last one perhaps fewer."""
    begin = tl.program_id(axis=0).to(tl.int64) * SHARE
    index = begin + tl.arange(0, SHARE)
    valid = index < n
    tl.store(
        out_ptr + index,
        tl.load(x_ptr + index, mask=valid) + tl.load(y_ptr + index, mask=valid),
        mask=valid,
    )


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    # A short vector gets fewer programs: less than 128 elements do not fill 4 warps.
    share = max(128, triton.cdiv(n, PROGRAMS))
    add_share[(triton.cdiv(n, share),)](x, y, out, n, SHARE=share)
    return out
