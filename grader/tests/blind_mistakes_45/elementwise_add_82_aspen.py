# labs/lab1_elementwise_add/elementwise_add.py | right | Nothing is wrong. Unusual: at most 1000 persistent programs, pointers and the number of elements left are moved on from turn to turn, and the next tile is loaded (masked) before the current one is stored. Offsets are int64 through `start`, masks compare lanes with `left`.
"""Add two vectors with persistent programs whose pointers move on, and which load a tile ahead."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
PROGRAMS = 1000
WARPS = 4


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns the tiles pid, pid + programs, pid + 2 * programs, ..."""
    lanes = tl.arange(0, BLOCK)
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    step = tl.num_programs(axis=0) * BLOCK

    xs = x_ptr + start + lanes
    ys = y_ptr + start + lanes
    outs = out_ptr + start + lanes
    left = n - start  # elements from the first of this tile to the end; not positive past the end

    x = tl.load(xs, mask=lanes < left)
    y = tl.load(ys, mask=lanes < left)
    for _ in range(start, n, step):
        total = x + y
        exists = lanes < left
        left -= step
        xs += step
        ys += step
        # The next tile, for the next turn; after the last tile these masks are false everywhere.
        x = tl.load(xs, mask=lanes < left)
        y = tl.load(ys, mask=lanes < left)
        tl.store(outs, total, mask=exists)
        outs += step


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.shape[0]
    if n > 0:
        programs = min(triton.cdiv(n, BLOCK), PROGRAMS)
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, num_warps=WARPS)
    return out
