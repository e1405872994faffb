# labs/lab1_elementwise_add/elementwise_add.py | corner | elementwise_add computes rounds = blocks // programs, rounded down; where there are more than 1024 blocks (n > 2^20) and their number is no multiple of 1024, the last blocks % 1024 blocks are never written, as at n = 2^20 + 3; should be triton.cdiv(blocks, programs) (the mask already takes care of the surplus)
"""Two vectors added by a limited number of programs, each of which takes several blocks in turn."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
MOST_PROGRAMS = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, rounds, BLOCK: tl.constexpr):
    """In round r, program pid takes block r * programs + pid."""
    pid = tl.program_id(axis=0).to(tl.int64)
    programs = tl.num_programs(axis=0)
    lanes = tl.arange(0, BLOCK)
    for r in range(rounds):
        offs = (r * programs + pid) * BLOCK + lanes
        mask = offs < n
        x = tl.load(x_ptr + offs, mask=mask)
        y = tl.load(y_ptr + offs, mask=mask)
        tl.store(out_ptr + offs, x + y, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype; the sum goes to `out`, or to a new tensor."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        blocks = triton.cdiv(n, BLOCK)
        programs = min(blocks, MOST_PROGRAMS)
        rounds = blocks // programs
        elementwise_add_kernel[(programs,)](x, y, out, n, rounds, BLOCK=BLOCK)
    return out
