"""EXPECT PASS from elementwise_add: as many programs as the device holds, a while loop strides.

Each program starts at its own block and then jumps ahead by the width of the whole grid, as a
"grid-stride loop" does in CUDA C++. Without a GPU (the interpreter) a handful of programs is enough.
"""

from typing import Final, Optional

import torch
import triton
import triton.language as tl

BLOCK: Final[int] = 2048
PROGRAMS_PER_SM: Final[int] = 16
PROGRAMS_WITHOUT_GPU: Final[int] = 6


@triton.jit
def _add_block(x_ptr, y_ptr, out_ptr, first, n, BLOCK: tl.constexpr):
    """Add the BLOCK elements from `first` on."""
    where = first + tl.arange(0, BLOCK)
    inside = where < n
    left = tl.load(x_ptr + where, mask=inside)
    right = tl.load(y_ptr + where, mask=inside)
    tl.store(out_ptr + where, left + right, mask=inside)


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    first = tl.program_id(axis=0).to(tl.int64) * BLOCK
    jump = tl.num_programs(axis=0).to(tl.int64) * BLOCK
    while first < n:
        _add_block(x_ptr, y_ptr, out_ptr, first, n, BLOCK)
        first += jump


def _how_many_programs(x: torch.Tensor, blocks: int) -> int:
    """At most PROGRAMS_PER_SM for each multiprocessor, and never more than there are blocks."""
    if not x.is_cuda:
        return min(blocks, PROGRAMS_WITHOUT_GPU)
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count
    return min(blocks, sms * PROGRAMS_PER_SM)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """x + y, both contiguous and of one dtype."""
    assert x.shape == y.shape, f"shapes differ: {tuple(x.shape)} and {tuple(y.shape)}"
    assert x.dtype == y.dtype, f"dtypes differ: {x.dtype} and {y.dtype}"
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    programs = _how_many_programs(x, triton.cdiv(n, BLOCK))
    elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, num_warps=8)
    return out


if __name__ == "__main__":
    a = torch.arange(5000.0)
    assert torch.equal(elementwise_add(a, 2 * a), 3 * a)
    print("fine")
