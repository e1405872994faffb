# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In elementwise_add_kernel's loop `y = fetch(y_ptr, there, n)` replaces the current block of y by the prefetched next one before the store, so out is x plus y of the program's next block (plus 0 past the end: out equals x for small n). It should go to y_next, and y = y_next should follow the store, as is done for x.
"""Add two vectors. A fixed number of programs walks over the vector, and each one asks for its next block early."""

import torch
import triton
import triton.language as tl

WIDTH = 2048
MOST_PROGRAMS = 1056  # eight for each SM of an H200


@triton.jit
def fetch(ptr, where, n):
    """The elements at `where`, and 0 where there are none."""
    return tl.load(ptr + where, mask=where < n, other=0.0)


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, WIDTH: tl.constexpr):
    """out[i] = x[i] + y[i]; program p owns the blocks p, p + programs, p + 2 programs, ..."""
    hop = tl.num_programs(axis=0).to(tl.int64) * WIDTH
    first = tl.program_id(axis=0).to(tl.int64) * WIDTH
    here = first + tl.arange(0, WIDTH)
    x = fetch(x_ptr, here, n)
    y = fetch(y_ptr, here, n)
    while first < n:
        # The next block is on its way while this one is added and stored.
        there = here + hop
        x_next = fetch(x_ptr, there, n)
        y = fetch(y_ptr, there, n)
        tl.store(out_ptr + here, x + y, mask=here < n)
        x = x_next
        here = there
        first += hop


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    programs = min(triton.cdiv(n, WIDTH), MOST_PROGRAMS)
    elementwise_add_kernel[(programs,)](x, y, out, n, WIDTH=WIDTH, num_warps=8)
    return out
