# labs/lab1_elementwise_add/elementwise_add.py | error | The host takes `block = min(n, 4096)`, which is no power of two for most n below 4096: `tl.arange` raises. It must be `triton.next_power_of_2(n)`. n of a power of two, and n >= 4096, run.
"""x + y. The block fits the vector: a short vector gets one short block."""

import torch
import triton
import triton.language as tl


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """One block for each program."""
    o = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o, mask=o < n)
    y = tl.load(y_ptr + o, mask=o < n)
    tl.store(out_ptr + o, x + y, mask=o < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    if n > 0:
        block = min(n, 4096)
        elementwise_add_kernel[(triton.cdiv(n, block),)](x, y, out, n, BLOCK=block)
    return out
