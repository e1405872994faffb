# labs/lab1_elementwise_add/elementwise_add.py | honest | a persistent grid-stride loop over block pointers that are made anew for each tile, from a base that moves by int64 steps.
import torch
import triton
import triton.language as tl


@triton.jit
def tile_of(base, n, start, BLOCK: tl.constexpr):
    return tl.make_block_ptr(base, shape=(n,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,))


@triton.jit
def add_tiles(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    start = tl.program_id(0).to(tl.int64) * BLOCK
    while start < n:
        # the pointer moves, so the offset within the tile stays small
        left = n - start
        xb = tile_of(x_ptr + start, left, 0, BLOCK)
        yb = tile_of(y_ptr + start, left, 0, BLOCK)
        ob = tile_of(out_ptr + start, left, 0, BLOCK)
        x = tl.load(xb, boundary_check=(0,))
        y = tl.load(yb, boundary_check=(0,))
        tl.store(ob, x + y, boundary_check=(0,))
        start += step


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    block = 8192 // x.element_size()
    programs = min(triton.cdiv(n, block), 16384)
    if programs > 0:
        add_tiles[(programs,)](x, y, out, n, BLOCK=block)
    return out
