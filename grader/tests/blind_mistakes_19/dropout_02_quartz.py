# labs/lab4_production_slice/dropout.py | two mistakes | Dropout.backward: dy goes to the operator without contiguous(), so an expanded or transposed dy is read wrongly; dropout: with training=False it runs with p = 0 and returns a copy, where it should return x itself
"""Dropout with Philox numbers drawn again in the backward pass."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((256, 2), (512, 4), (1024, 4))]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """Four elements for each of the BLOCK counters of a program."""
    program = tl.program_id(axis=0).to(tl.int64)
    counters = program * BLOCK + tl.arange(0, BLOCK)
    a, b, c, d = tl.rand4x(seed, counters)
    random = tl.join(tl.join(a, b), tl.join(c, d)).reshape(BLOCK * 4)
    offsets = program * (BLOCK * 4) + tl.arange(0, BLOCK * 4)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    keep = random >= tl.cast(p, tl.float32)
    y = tl.where(keep, x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=mask)


def scale_of(p):
    """What a kept element is multiplied by."""
    if p >= 1.0:
        return 0.0
    return 1.0 / (1.0 - p)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """Drop with probability p, scale the rest."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()

    def grid(meta):
        return (triton.cdiv(n, meta["BLOCK"] * 4),)

    on(dropout_kernel, x)[grid](x, out, n, p, scale_of(p), seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The same function of dy."""
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    """Keeps p and seed, no mask."""

    @staticmethod
    def forward(ctx, x, p, seed):
        ctx.p, ctx.seed = p, seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        dx = dropout_op(dy, ctx.p, ctx.seed)
        return dx, None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout."""
    return Dropout.apply(x, p if training else 0.0, seed)
