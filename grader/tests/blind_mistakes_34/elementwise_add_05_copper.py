# labs/lab1_elementwise_add/elementwise_add.py | right | right
"""Add two vectors, last block first.

The last block is moved back until it ends at n, so that it is a full one: it shares some elements with the block before it,
and both store the same sums there. Only a vector shorter than a block needs its mask.
"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]."""
    which = (tl.num_programs(0) - 1 - tl.program_id(0)).to(tl.int64)
    begin = tl.maximum(tl.minimum(which * BLOCK, n - BLOCK), 0)
    offs = begin + tl.arange(0, BLOCK)
    live = offs < n
    y = tl.load(y_ptr + offs, mask=live)
    x = tl.load(x_ptr + offs, mask=live)
    tl.store(out_ptr + offs, x + y, mask=live)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    if n > 0:
        elementwise_add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=BLOCK)
    return out
