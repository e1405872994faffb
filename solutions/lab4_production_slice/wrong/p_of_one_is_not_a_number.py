"""EXPECT WRONG/NONFINITE from dropout_forward, hint 8: S55 0 * inf where p = 1"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, seed, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    keep = tl.rand(seed, offs) >= p
    y = x * keep / (1.0 - p)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


def dropout_forward(x, *, p: float, seed: int, out=None):
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    dropout_kernel[(triton.cdiv(n, BLOCK),)](x, out, n, p, seed, BLOCK=BLOCK)
    return out
