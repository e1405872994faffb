"""EXPECT CRASHED from dropout_forward and dropout, hint 8: S55 1 / (1 - p) on the host"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    keep = tl.rand(seed, offs) >= p
    y = tl.where(keep, x * scale, 0.0)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


def dropout_forward(x, *, p: float, seed: int, out=None):
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    dropout_kernel[(triton.cdiv(n, BLOCK),)](x, out, n, p, 1 / (1 - p), seed, BLOCK=BLOCK)
    return out


class Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p, seed):
        ctx.p, ctx.seed = p, seed
        return dropout_forward(x, p=p, seed=seed)

    @staticmethod
    def backward(ctx, dy):
        return dropout_forward(dy.contiguous(), p=ctx.p, seed=ctx.seed), None, None


def dropout(x, *, p=0.5, seed, training=True):
    return Dropout.apply(x, p, seed) if training else x
