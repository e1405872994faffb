# labs/lab1_elementwise_add/elementwise_add.py | corner | in elementwise_add_kernel, `count = tl.where(pid == last, n % BLOCK, BLOCK)` gives the last program 0 lanes where n is a multiple of BLOCK (2048), so the last 2048 elements of out stay unwritten; shows only for n = 2048, 4096, 8192, 2**28 and other multiples of 2048; all other sizes are right; should be n - start (capped at BLOCK), or simply a mask offs < n
"""Add two vectors. Each program works out how many lanes of its block are in use."""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0)
    last = tl.num_programs(axis=0) - 1
    start = pid.to(tl.int64) * BLOCK

    count = tl.where(pid == last, n % BLOCK, BLOCK)
    lane = tl.arange(0, BLOCK)
    used = lane < count

    offs = start + lane
    a = tl.load(x_ptr + offs, mask=used)
    b = tl.load(y_ptr + offs, mask=used)
    tl.store(out_ptr + offs, a + b, mask=used)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    programs = triton.cdiv(n, BLOCK)
    elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, num_warps=8)
    return out
