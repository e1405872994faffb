# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | in elementwise_add_kernel, inside the loop, the block of y that is loaded ahead overwrites the current one before it is used: `y = tl.load(y_ptr + ahead, ...)` comes before `x + y` is stored, so the result is x[i] + y[i + step] with step = programs * BLOCK, and x[i] + 0 where i + step is past the end; up to n = 2048 * 1024 there is one round, so out equals x alone; wrong for every n > 0; it should load into y_next and do `y = y_next` after the store, as is done for x
"""Vector addition with a fixed number of programs that walk over the vector and load one round ahead."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
MOST_PROGRAMS = 2048


@triton.jit
def elementwise_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    n,
    rounds,  # how many blocks each program visits
    BLOCK: tl.constexpr,
):
    """Program pid owns the blocks pid, pid + programs, pid + 2 * programs, ..."""
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)

    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    y = tl.load(y_ptr + offs, mask=offs < n, other=0.0)
    for _ in range(0, rounds):
        # The next round is on its way while this one is stored.
        ahead = offs + step
        more = ahead < n
        x_next = tl.load(x_ptr + ahead, mask=more, other=0.0)
        y = tl.load(y_ptr + ahead, mask=more, other=0.0)
        tl.store(out_ptr + offs, x + y, mask=offs < n)
        x = x_next
        offs = ahead


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)

    n = x.numel()
    if n == 0:
        return out

    blocks = triton.cdiv(n, BLOCK)
    programs = min(blocks, MOST_PROGRAMS)
    rounds = triton.cdiv(blocks, programs)
    elementwise_add_kernel[(programs,)](x, y, out, n, rounds, BLOCK=BLOCK)
    return out
