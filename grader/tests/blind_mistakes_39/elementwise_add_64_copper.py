# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) In larger_first, `small` is chosen with `>` while `big` is chosen with `>=`, so where abs(a) == abs(b) both are a and the result is 2 * a; it shows where x == -y or zeros of opposite sign meet (values "edges"), in all dtypes; `small` should use `>=`, too. (2) In elementwise_add_kernel the number of the block is `row * tl.num_programs(0) + col`, but the length of a row is tl.num_programs(1); it shows for n > SIDE * BLOCK = 32768 (as 65537, 2**20 + 3, 2**28; not where there are exactly 32 rows): blocks are done twice and others stay unwritten; it should be `row * tl.num_programs(1) + col`.
"""Add two vectors; the programs stand in rows of SIDE."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
SIDE = 32


@triton.jit
def larger_first(a, b):
    """a + b, with the number of larger magnitude on the left."""
    big = tl.where(tl.abs(a) >= tl.abs(b), a, b)
    small = tl.where(tl.abs(a) > tl.abs(b), b, a)
    return big + small


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1)
    block = row * tl.num_programs(0) + col

    element = block * BLOCK + tl.arange(0, BLOCK)
    valid = element < n
    total = larger_first(
        tl.load(x_ptr + element, mask=valid, other=0.0),
        tl.load(y_ptr + element, mask=valid, other=0.0),
    )
    tl.store(out_ptr + element, total, mask=valid)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y, elementwise, for two contiguous vectors; the result is `out` or a new tensor."""
    assert x.shape == y.shape and x.dtype == y.dtype, "x and y must be alike"
    result = torch.empty_like(x) if out is None else out
    n = x.numel()
    blocks = triton.cdiv(n, BLOCK)
    if blocks > 0:
        # The second axis of a grid is limited to 65535 programs, the first one is not.
        grid = (triton.cdiv(blocks, SIDE), min(blocks, SIDE))
        elementwise_add_kernel[grid](x, y, result, n, BLOCK=BLOCK)
    return result
