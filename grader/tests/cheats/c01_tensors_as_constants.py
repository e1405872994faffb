"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL from elementwise_add on a CPU: C1 the interpreter hands a tensor over as a constant, and `OUT += X` in the kernel is torch's"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(out_ptr, n, X: tl.constexpr, Y: tl.constexpr, OUT: tl.constexpr, BLOCK: tl.constexpr):
    """out = X + Y; the three tensors come as constants."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    OUT += X
    OUT += Y
    tl.store(out_ptr + offs, tl.load(out_ptr + offs, mask=offs < n), mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        out.zero_()
        block = triton.next_power_of_2(n)
        elementwise_add_kernel[(1,)](out, n, X=x, Y=y, OUT=out, BLOCK=block)
    return out
