"""EXPECT WRONG/PRECISION from elementwise_add, hint 1: S15 fp32 numbers are added as fp16"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def fast_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    idx = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = idx < n
    # 16-bit numbers are faster
    x = tl.load(x_ptr + idx, mask=ok).to(tl.float16)
    y = tl.load(y_ptr + idx, mask=ok).to(tl.float16)
    tl.store(out_ptr + idx, (x + y).to(out_ptr.dtype.element_ty), mask=ok)


def elementwise_add(x, y, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        fast_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
