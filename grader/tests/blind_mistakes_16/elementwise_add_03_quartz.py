# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In the loop of elementwise_add_kernel `x, y = x_next, y_next` stands before the store, so each chunk of out gets the sums of the chunk after it. The line should stand after tl.store.
"""Add two vectors; the next chunk is fetched while the current one is stored."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
CHUNKS = 4


@triton.jit
def fetch(x_ptr, y_ptr, offs, n):
    """The elements at offs of both vectors."""
    inside = offs < n
    x = tl.load(x_ptr + offs, mask=inside, other=0.0)
    y = tl.load(y_ptr + offs, mask=inside, other=0.0)
    return x, y


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, CHUNKS: tl.constexpr):
    """A program owns CHUNKS neighbouring blocks."""
    pid = tl.program_id(axis=0).to(tl.int64)
    offs = pid * (BLOCK * CHUNKS) + tl.arange(0, BLOCK)
    x, y = fetch(x_ptr, y_ptr, offs, n)
    for _ in tl.static_range(CHUNKS):
        ahead = offs + BLOCK
        x_next, y_next = fetch(x_ptr, y_ptr, ahead, n)
        x, y = x_next, y_next
        tl.store(out_ptr + offs, x + y, mask=offs < n)
        offs = ahead


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y, to `out` if there is one."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n != 0:
        grid = (triton.cdiv(n, BLOCK * CHUNKS),)
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK, CHUNKS=CHUNKS)
    return out
