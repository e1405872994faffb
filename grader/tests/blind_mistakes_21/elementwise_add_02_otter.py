# labs/lab1_elementwise_add/elementwise_add.py | corner | In elementwise_add_kernel the mask is `cols < stop` with stop = start + share, and stop is never limited to n; where n is no multiple of the number of programs (only for n > BLOCK), the last program reads and writes past the end. It should be stop = min(start + share, n).
"""Vector addition with a limited number of programs; each has one contiguous share of the vector."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
MAX_PROGRAMS = 2112  # 16 for each of 132 multiprocessors


@triton.jit
def elementwise_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    share,  # elements for one program
    BLOCK: tl.constexpr,
):
    """Program i owns elements i * share up to (i + 1) * share, and walks through them BLOCK at a time."""
    start = tl.program_id(axis=0).to(tl.int64) * share
    stop = start + share
    for step in range(0, share, BLOCK):
        cols = start + step + tl.arange(0, BLOCK)
        # the last step of a share is usually shorter than BLOCK
        mine = cols < stop
        x = tl.load(x_ptr + cols, mask=mine)
        y = tl.load(y_ptr + cols, mask=mine)
        tl.store(out_ptr + cols, x + y, mask=mine)


def split(n: int) -> tuple:
    """How many programs, and how many elements each of them gets."""
    programs = min(MAX_PROGRAMS, triton.cdiv(n, BLOCK))
    return programs, triton.cdiv(n, programs)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.shape[0]
    if n == 0:
        return out
    programs, share = split(n)
    elementwise_add_kernel[(programs,)](x, y, out, share, BLOCK=BLOCK)
    return out
