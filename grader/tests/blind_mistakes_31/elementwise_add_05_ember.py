# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) In elementwise_add_kernel, `base = tl.program_id(0).to(tl.int64) * BLOCK` lacks the factor TILES, although a program owns BLOCK * TILES elements and the grid counts them so: for n > 1280 (and for no n <= 1280) the last elements stay unwritten, as with n = 1536; it should be `* BLOCK * TILES`. (2) In the same kernel the sum starts from `tl.zeros`, so -0.0 + -0.0 gives 0.0 instead of -0.0, at every n and in every dtype where two negative zeros meet; it should store x + y alone.
"""Add two vectors. A program walks over a few neighbouring tiles."""

import torch
import triton
import triton.language as tl

BLOCK = 256
TILES = 4


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, TILES: tl.constexpr):
    base = tl.program_id(0).to(tl.int64) * BLOCK
    lanes = tl.arange(0, BLOCK)
    for tile in tl.static_range(TILES):
        at = base + tile * BLOCK + lanes
        valid = at < n
        acc = tl.zeros((BLOCK,), dtype=tl.float32)
        acc += tl.load(x_ptr + at, mask=valid)
        acc += tl.load(y_ptr + at, mask=valid)
        tl.store(out_ptr + at, acc.to(out_ptr.dtype.element_ty), mask=valid)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """The sum of x and y, in `out` if it is given."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        grid = (triton.cdiv(n, BLOCK * TILES),)
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK, TILES=TILES, num_warps=2)
    return out
