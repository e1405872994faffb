# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In elementwise_add the launch passes `(x, y, out, n, ...)`, but add_into_kernel has its destination first (`dst_ptr, a_ptr, b_ptr`); it should pass `(out, x, y, n, ...)`. So y + out is stored to x: the input is changed and out is unwritten, for every n > 0.
"""Add two vectors: a few programs for each multiprocessor walk over the vector in steps."""

import torch
import triton
import triton.language as tl

BLOCK = 2048
AT_MOST = 132 * 8  # programs


@triton.jit
def add_into_kernel(dst_ptr, a_ptr, b_ptr, n, BLOCK: tl.constexpr):
    """dst[i] = a[i] + b[i] for contiguous (n,) vectors of one dtype.

    With P programs, program pid owns blocks pid, pid + P, pid + 2 * P and so on.
    """
    lane = tl.arange(0, BLOCK)
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    step = tl.num_programs(axis=0).to(tl.int64) * BLOCK
    while start < n:
        offs = start + lane
        inside = offs < n
        a = tl.load(a_ptr + offs, mask=inside)
        b = tl.load(b_ptr + offs, mask=inside)
        tl.store(dst_ptr + offs, a + b, mask=inside)
        start += step


def programs_for(n: int) -> int:
    """As many programs as there are blocks, but no more than can run at a time."""
    return min(triton.cdiv(n, BLOCK), AT_MOST)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        add_into_kernel[(programs_for(n),)](x, y, out, n, BLOCK=BLOCK, num_warps=8)
    return out
