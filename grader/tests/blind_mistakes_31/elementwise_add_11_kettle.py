# labs/lab1_elementwise_add/elementwise_add.py | corner | In elementwise_add, `min(BLOCK, triton.next_power_of_2(n))` rounds up: for n < 1024 that is no power of two (7, 48, 127, 129, 1009, ...) the block is longer than the vector, so in the kernel `n - BLOCK` is negative, and elements before the start of x, y and out are read and written, although out itself is right; other n are right. It should be the largest power of two that is not above n, `min(BLOCK, 1 << (n.bit_length() - 1))`.
"""Add two vectors without a mask: the last block is moved back, so that it ends with the vectors."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Two blocks may share elements; both of them store the same sums there."""
    pid = tl.program_id(axis=0).to(tl.int64)
    start = tl.minimum(pid * BLOCK, n - BLOCK)
    offs = start + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs) + tl.load(y_ptr + offs))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        block = min(BLOCK, triton.next_power_of_2(n))
        elementwise_add_kernel[(triton.cdiv(n, block),)](x, y, out, n, BLOCK=block)
    return out
