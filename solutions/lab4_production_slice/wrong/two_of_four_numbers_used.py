"""EXPECT WRONG/MISMATCH from dropout_forward, hint 9: S54 two numbers of a counter are used twice"""

import torch
import triton
import triton.language as tl

BLOCK = 512


@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    program = tl.program_id(axis=0)
    counters = program * BLOCK + tl.arange(0, BLOCK)
    a, b, _, _ = tl.rand4x(seed, counters)
    random = tl.join(tl.join(a, b), tl.join(a, b)).reshape(4 * BLOCK)
    first = program.to(tl.int64) * 4 * BLOCK
    offs = first + tl.arange(0, 4 * BLOCK)
    inside = offs < n
    x = tl.load(x_ptr + offs, mask=inside).to(tl.float32)
    y = tl.where(random >= p, x * scale, 0.0)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=inside)


def dropout_forward(x, *, p: float, seed: int, out=None):
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    dropout_kernel[(triton.cdiv(n, 4 * BLOCK),)](x, out, n, p, scale, seed, BLOCK=BLOCK)
    return out
