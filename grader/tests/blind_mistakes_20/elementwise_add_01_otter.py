# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In add_pipelined the load of the next chunk of y goes straight into `b` before the store, so out[i] = x[i] + y[i + CHUNK] (and x[i] + 0 where that chunk does not exist). It should be loaded into a variable of its own and become `b` only after the store, as is done for `a`.
"""Add two vectors; every program walks over DEPTH chunks and fetches one chunk ahead of the one it stores."""

import torch
import triton
import triton.language as tl

CHUNK = 512
DEPTH = 8


@triton.jit
def add_pipelined(a_ptr, b_ptr, c_ptr, n, CHUNK: tl.constexpr, DEPTH: tl.constexpr):
    # this program owns the CHUNK * DEPTH elements from here on
    first = tl.program_id(axis=0).to(tl.int64) * (CHUNK * DEPTH)
    here = first + tl.arange(0, CHUNK)

    # prologue: chunk 0
    a = tl.load(a_ptr + here, mask=here < n, other=0.0)
    b = tl.load(b_ptr + here, mask=here < n, other=0.0)

    for step in range(DEPTH):
        # issue the loads of the next chunk first, so that they overlap with the store
        ahead = here + CHUNK
        more = ahead < n
        a_ahead = tl.load(a_ptr + ahead, mask=more, other=0.0)
        b = tl.load(b_ptr + ahead, mask=more, other=0.0)

        tl.store(c_ptr + here, a + b, mask=here < n)

        a = a_ahead
        here = ahead


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    programs = triton.cdiv(n, CHUNK * DEPTH)
    add_pipelined[(programs,)](x, y, out, n, CHUNK=CHUNK, DEPTH=DEPTH, num_warps=4)
    return out
