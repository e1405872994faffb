# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In add_walking, `a, b = a_next, b_next` stands before the store, so each block of out gets the sum of the block that was fetched ahead (one hop further), and the last block of each program gets 0.0 + 0.0. Shows for every n > 0: all zeros up to PROGRAMS * BLOCK elements, sums of other elements and zeros beyond. The store of a + b should come first, and the exchange after it.
"""x + y: a fixed number of programs walk over the vectors, and fetch one block ahead."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
PROGRAMS = 1024


@triton.jit
def add_walking(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Program p owns the blocks p, p + programs, p + 2 * programs, and so on."""
    lanes = tl.arange(0, BLOCK)
    begin = tl.program_id(axis=0).to(tl.int64) * BLOCK
    hop = tl.num_programs(axis=0).to(tl.int64) * BLOCK

    first = begin + lanes
    a = tl.load(x_ptr + first, mask=first < n, other=0.0)
    b = tl.load(y_ptr + first, mask=first < n, other=0.0)
    for start in range(begin, n, hop):
        here = start + lanes
        ahead = here + hop
        # Ask for the next block now, so that its numbers travel while this one is finished.
        a_next = tl.load(x_ptr + ahead, mask=ahead < n, other=0.0)
        b_next = tl.load(y_ptr + ahead, mask=ahead < n, other=0.0)
        a, b = a_next, b_next
        tl.store(out_ptr + here, a + b, mask=here < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous vectors of one dtype, into `out` where it is given."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    programs = min(triton.cdiv(n, BLOCK), PROGRAMS)
    add_walking[(programs,)](x, y, out, n, BLOCK=BLOCK)
    return out
