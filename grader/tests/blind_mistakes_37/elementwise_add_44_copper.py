# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) in elementwise_add, `WHOLE=n % WIDTH == 0` chooses the path without masks, but a program covers WIDTH * UNROLL = 2048 elements: for n a multiple of 512 but not of 2048 (graded: 512, 1024, 1536) the last program reads and writes past the end of x, y and out; it should be `n % (WIDTH * UNROLL) == 0`; (2) in elementwise_add_kernel, the sum starts from `tl.zeros` and both operands are added to it: where both are -0.0 the result is 0.0 in place of -0.0 (the cases with values=edges, every dtype, every n with such a pair); it should store x + y itself
"""Vector addition, a few accesses per program, and without masks where the vector needs none."""

import torch
import triton
import triton.language as tl

WIDTH = 512  # elements of one access
UNROLL = 4  # accesses of one program


@triton.jit
def elementwise_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    n,
    WIDTH: tl.constexpr,
    UNROLL: tl.constexpr,
    WHOLE: tl.constexpr,
):
    base = tl.program_id(0).to(tl.int64) * (WIDTH * UNROLL)
    lanes = tl.arange(0, WIDTH)
    for part in tl.static_range(UNROLL):
        at = base + part * WIDTH + lanes
        acc = tl.zeros((WIDTH,), dtype=out_ptr.dtype.element_ty)
        if WHOLE:
            acc += tl.load(x_ptr + at)
            acc += tl.load(y_ptr + at)
            tl.store(out_ptr + at, acc)
        else:
            valid = at < n
            acc += tl.load(x_ptr + at, mask=valid, other=0.0)
            acc += tl.load(y_ptr + at, mask=valid, other=0.0)
            tl.store(out_ptr + at, acc, mask=valid)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """The sum of two contiguous vectors, in `out` if the caller has one."""
    if out is None:
        out = torch.empty_like(x)
    n = x.shape[0]
    if n > 0:
        programs = triton.cdiv(n, WIDTH * UNROLL)
        elementwise_add_kernel[(programs,)](
            x,
            y,
            out,
            n,
            WIDTH=WIDTH,
            UNROLL=UNROLL,
            WHOLE=n % WIDTH == 0,
        )
    return out
