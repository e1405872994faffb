"""EXPECT PASS from dropout: the choice is stored, a byte an element, and backward reads it."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def choose_kernel(x_ptr, y_ptr, kept_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = tl.rand(seed, offs) >= p
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0).to(tl.float32)
    tl.store(y_ptr + offs, tl.where(kept, x * scale, 0.0).to(y_ptr.dtype.element_ty), mask=offs < n)
    tl.store(kept_ptr + offs, kept.to(tl.int8), mask=offs < n)


@triton.jit
def apply_kernel(dy_ptr, kept_ptr, dx_ptr, n, scale, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dy = tl.load(dy_ptr + offs, mask=offs < n, other=0.0).to(tl.float32)
    kept = tl.load(kept_ptr + offs, mask=offs < n, other=0) != 0
    tl.store(dx_ptr + offs, tl.where(kept, dy * scale, 0.0).to(dx_ptr.dtype.element_ty), mask=offs < n)


class Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p, seed):
        n, y = x.numel(), torch.empty_like(x)
        kept = torch.empty(x.shape, dtype=torch.int8, device=x.device)
        ctx.scale = 0.0 if p == 1.0 else 1.0 / (1.0 - p)
        choose_kernel[(triton.cdiv(n, BLOCK),)](x, y, kept, n, p, ctx.scale, seed, BLOCK=BLOCK)
        ctx.save_for_backward(kept)
        return y

    @staticmethod
    def backward(ctx, dy):
        (kept,) = ctx.saved_tensors
        dy, n = dy.contiguous(), dy.numel()
        dx = torch.empty_like(dy)
        apply_kernel[(triton.cdiv(n, BLOCK),)](dy, kept, dx, n, ctx.scale, BLOCK=BLOCK)
        return dx, None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True):
    return Dropout.apply(x, p, seed) if training else x
