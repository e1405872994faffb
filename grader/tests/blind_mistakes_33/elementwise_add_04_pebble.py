# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) in elementwise_add_kernel the sum starts from `tl.zeros`, and 0.0 + -0.0 is 0.0: where x and y are both -0.0 the result is 0.0 instead of -0.0 (edges cases only); it should be x + y with nothing added. (2) in plan the width of the single program of a short vector is `1 << (n.bit_length() - 1)`, which rounds down to a power of two: for n < 2048 that is no power of two (7, 48, 127, 129, 1009, 1536) the elements from that width on stay unwritten; it should be `1 << (n - 1).bit_length()`
"""Add two vectors. A short one is the work of a single program, a long one is cut into blocks."""

import torch
import triton
import triton.language as tl

LONG = 2048


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, WIDTH: tl.constexpr):
    where = tl.program_id(axis=0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    live = where < n
    total = tl.zeros((WIDTH,), dtype=tl.float32)
    total += tl.load(x_ptr + where, mask=live)
    total += tl.load(y_ptr + where, mask=live)
    tl.store(out_ptr + where, total, mask=live)


def plan(n):
    """How many programs to launch for n > 0 elements, and how wide each one is: a power of two."""
    if n >= LONG:
        return triton.cdiv(n, LONG), LONG
    return 1, 1 << (n.bit_length() - 1)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.shape[0]
    if n > 0:
        programs, width = plan(n)
        elementwise_add_kernel[(programs,)](x, y, out, n, WIDTH=width)
    return out
