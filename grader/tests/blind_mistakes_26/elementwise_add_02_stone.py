# labs/lab1_elementwise_add/elementwise_add.py | corner | In add_slice, the last program gets `n % WIDTH` elements, which is 0 where n is a multiple of WIDTH (512): then the whole last block stays unwritten (n = 512, 1024, 1536, 2048, ..., 2**28; for n = 512 nothing is written at all). All other n are right. It should be n - begin, i.e. WIDTH where the remainder is 0 (or simply the mask begin + lane < n).
"""Sum of two vectors, a slice of WIDTH elements for each program."""

import torch
import triton
import triton.language as tl

WIDTH = 512


@triton.jit
def add_slice(x_ptr, y_ptr, out_ptr, n, WIDTH: tl.constexpr):
    pid = tl.program_id(0)
    is_last = pid == tl.num_programs(0) - 1

    # Move all three pointers to the slice, and count within it from here on.
    begin = pid.to(tl.int64) * WIDTH
    x_ptr += begin
    y_ptr += begin
    out_ptr += begin

    lane = tl.arange(0, WIDTH)
    count = tl.where(is_last, n % WIDTH, WIDTH)
    inside = lane < count

    left = tl.load(x_ptr + lane, mask=inside)
    right = tl.load(y_ptr + lane, mask=inside)
    tl.store(out_ptr + lane, left + right, mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y; the result is `out`, or a new tensor like x."""
    result = torch.empty_like(x) if out is None else out
    length = x.numel()
    if length > 0:
        slices = triton.cdiv(length, WIDTH)
        add_slice[(slices,)](x, y, result, length, WIDTH=WIDTH, num_warps=4)
    return result
