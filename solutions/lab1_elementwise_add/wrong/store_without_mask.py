"""EXPECT OUT_OF_BOUNDS/WRITE from elementwise_add, hint 2: S3 only the loads have a mask"""

import torch
import triton
import triton.language as tl

BLOCK = 512


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    inside = offs < n
    # lanes past the end add 0 + 0
    x = tl.load(x_ptr + offs, mask=inside, other=0.0)
    y = tl.load(y_ptr + offs, mask=inside, other=0.0)
    tl.store(out_ptr + offs, x + y)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    if n == 0:
        return out
    add[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
