"""EXPECT PASS from dropout_forward and dropout: one tl.rand for each element."""

import torch
import triton
import triton.language as tl


@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, seed, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0).to(tl.float32)
    # rand is below 1: where p is 1, no element is kept, and 1 / (1 - p) is not used.
    y = tl.where(tl.rand(seed, offs) >= p, x / (1.0 - p), 0.0)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=offs < n)


def dropout_forward(x, *, p: float, seed: int, out=None):
    out = torch.empty_like(x) if out is None else out
    dropout_kernel[(triton.cdiv(x.numel(), 2048),)](x, out, x.numel(), p, seed, BLOCK=2048)
    return out


class Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p, seed):
        ctx.p = p
        ctx.seed = seed
        return dropout_forward(x, p=p, seed=seed)

    @staticmethod
    def backward(ctx, dy):
        return dropout_forward(dy.contiguous(), p=ctx.p, seed=ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True):
    if not training:
        return x
    return Dropout.apply(x, p, seed)
