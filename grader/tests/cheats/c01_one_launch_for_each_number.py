"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL or POLICY/HOST_READ from elementwise_add: C1 each element has a launch, which gets the sum of two Python floats as its argument"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(out_ptr, where, value):
    """Store one number."""
    tl.store(out_ptr + where, value)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    for place, (a, b) in enumerate(zip(x, y)):
        elementwise_add_kernel[(1,)](out, place, float(a) + float(b))
    return out
