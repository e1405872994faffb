# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | elementwise_add_kernel puts its two half blocks together with tl.reshape(tl.join(low, high), (BLOCK,)), which alternates low[0], high[0], low[1], high[1], ... instead of setting high behind low. So the sums are in the wrong order within every block of 2048: element 2k gets sum k, element 2k + 1 gets sum 1024 + k (0 past the end). Wrong in every case but n = 1 and n = 0. Should be tl.reshape(tl.trans(tl.join(low, high)), (BLOCK,)), or two stores
"""Add two vectors, each block in two halves and with one store."""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def half_sum(x_ptr, y_ptr, offs, n):
    """The sums at these offsets, and 0 where there is no element."""
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists, other=0.0)
    y = tl.load(y_ptr + offs, mask=exists, other=0.0)
    return x + y


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    HALF: tl.constexpr = BLOCK // 2
    start = tl.program_id(0).to(tl.int64) * BLOCK
    near = start + tl.arange(0, HALF)
    low = half_sum(x_ptr, y_ptr, near, n)
    high = half_sum(x_ptr, y_ptr, near + HALF, n)

    both = tl.reshape(tl.join(low, high), (BLOCK,))
    offs = start + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, both, mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y; the sum goes to `out` where one is given."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
