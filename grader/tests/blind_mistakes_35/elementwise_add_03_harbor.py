# labs/lab1_elementwise_add/elementwise_add.py | error | in elementwise_add_kernel, `cursor = tl.program_id(0) * BLOCK` is int32, and `cursor += stride` in the while loop makes it int64, because stride is int64; Triton does not compile a loop-carried variable that changes its type, so every launch for a GPU fails (COMPILE_ERROR), while the interpreter runs it and gives right values; should be tl.program_id(0).to(tl.int64) * BLOCK
"""Add two vectors with a bounded number of programs, each of which walks over the vectors."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
MAX_PROGRAMS = 4096


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    cursor = tl.program_id(0) * BLOCK
    # One step of the whole grid; large vectors need 64 bits.
    stride = tl.num_programs(0).to(tl.int64) * BLOCK
    while cursor < n:
        offs = cursor + lanes
        valid = offs < n
        x = tl.load(x_ptr + offs, mask=valid)
        y = tl.load(y_ptr + offs, mask=valid)
        tl.store(out_ptr + offs, x + y, mask=valid)
        cursor += stride


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y, written to `out` if there is one."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    programs = min(triton.cdiv(n, BLOCK), MAX_PROGRAMS)
    elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK)
    return out
