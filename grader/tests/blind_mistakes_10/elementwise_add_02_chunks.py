# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | the mask compares with the end of the program's chunk, `offs < last`; must be the smaller of that and n (`offs < n`). Chunks are whole blocks, so the last chunk reads and writes past the end of the vectors. Shows wherever n is no multiple of the chunk, also in every n below 1024.
"""Add two vectors with at most PROGRAMS programs, each of which walks through a chunk of neighbouring blocks."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
PROGRAMS = 1056  # 8 for each of the 132 multiprocessors of an H200


@triton.jit
def add_chunk_kernel(x_ptr, y_ptr, out_ptr, n, chunk, BLOCK: tl.constexpr):
    first = tl.program_id(axis=0).to(tl.int64) * chunk
    last = first + chunk
    if first < n:
        lanes = tl.arange(0, BLOCK)
        for start in range(first, last, BLOCK):
            offs = start + lanes
            mine = offs < last
            x = tl.load(x_ptr + offs, mask=mine)
            y = tl.load(y_ptr + offs, mask=mine)
            tl.store(out_ptr + offs, x + y, mask=mine)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y; the sum goes to `out` where one is given."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    if n == 0:
        return out
    blocks = triton.cdiv(n, BLOCK)
    programs = min(blocks, PROGRAMS)
    # whole blocks for each program, so that all loads are aligned
    chunk = triton.cdiv(blocks, programs) * BLOCK
    add_chunk_kernel[(programs,)](x, y, out, n, chunk, BLOCK=BLOCK)
    return out
