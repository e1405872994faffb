"""EXPECT WRONG/MISMATCH from dropout_forward: a program drops all or nothing"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    keep = tl.rand(seed, tl.program_id(0)) >= p
    y = tl.where(keep, x * scale, 0.0)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


def dropout_forward(x, *, p: float, seed: int, out=None):
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1 / (1 - p) if p < 1 else 0.0
    dropout_kernel[(triton.cdiv(n, BLOCK),)](x, out, n, p, scale, seed, BLOCK=BLOCK)
    return out
