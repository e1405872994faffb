# labs/lab1_elementwise_add/elementwise_add.py | corner | elementwise_add: `rounds = max(1, n // (programs * BLOCK))` rounds down, so where n is above 1024 * 1024 and no multiple of it, the last, partial round is never walked and the elements from rounds * 2^20 on stay unwritten (n = 2^20 + 3: the last 3); smaller n and multiples of 2^20 are right; it should be triton.cdiv(n, programs * BLOCK)
"""Add two vectors: at most PROGRAMS programs walk over the data together, in rounds."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
PROGRAMS = 1024


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    rounds,
    BLOCK: tl.constexpr,
):
    """In each round the programs stand side by side; then all of them move on by the width of the round."""
    lanes = tl.arange(0, BLOCK)
    base = tl.program_id(axis=0).to(tl.int64) * BLOCK
    width = tl.num_programs(axis=0).to(tl.int64) * BLOCK
    for step in range(rounds):
        offs = base + lanes
        inside = offs < n
        x = tl.load(x_ptr + offs, mask=inside)
        y = tl.load(y_ptr + offs, mask=inside)
        tl.store(out_ptr + offs, x + y, mask=inside)
        base += width


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        programs = min(triton.cdiv(n, BLOCK), PROGRAMS)
        # Few programs for a small n: then one round is enough.
        rounds = max(1, n // (programs * BLOCK))
        elementwise_add_kernel[(programs,)](x, y, out, n, rounds, BLOCK=BLOCK)
    return out
