# labs/lab4_production_slice/dropout.py | wrong everywhere | In uniform(), the bits are taken as int32 before the shift, so >> 8 is arithmetic and the numbers lie in [-0.5, 0.5), not in [0, 1): of p = 0.1 only 40 % is kept, of p = 0 half, of p = 0.5 nothing. It should shift uint32 (or add 0.5). Only p = 1 is right.
"""Dropout that draws its numbers again for the gradient.

A counter of Philox gives four integers. Integer k of counter c decides element 4 c + k.
"""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((256, 4), (512, 4), (1024, 8))
]


@triton.jit
def uniform(bits):
    """Return 24 bits of random integers as fp32 numbers, which hold just as many."""
    return (bits.to(tl.int32, bitcast=True) >> 8).to(tl.float32) * 5.9604644775390625e-08


@triton.jit
def decide(x_ptr, y_ptr, index, n, bits, p, scale):
    """Keep or drop the elements at index."""
    mask = index < n
    x = tl.load(x_ptr + index, mask=mask, other=0.0).to(tl.float32)
    y = tl.where(uniform(bits) >= p, x * scale, 0.0)
    tl.store(y_ptr + index, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0."""
    program = tl.program_id(axis=0)
    counters = program * BLOCK + tl.arange(0, BLOCK)
    r0, r1, r2, r3 = tl.randint4x(seed, counters)
    limit = tl.cast(p, tl.float32)
    factor = tl.cast(scale, tl.float32)
    index = counters.to(tl.int64) * 4
    decide(x_ptr, y_ptr, index, n, r0, limit, factor)
    decide(x_ptr, y_ptr, index + 1, n, r1, limit, factor)
    decide(x_ptr, y_ptr, index + 2, n, r2, limit, factor)
    decide(x_ptr, y_ptr, index + 3, n, r3, limit, factor)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p, else 0; into `out` where one is given."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0
    on(dropout_kernel, x)[lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)](x, out, n, p, scale, seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient of dropout: dy / (1 - p) where the forward pass of this seed kept x, else 0."""
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """dropout_forward as an operator that torch.compile can look into."""
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x, p, seed):
        """Return y for x."""
        ctx.p = p
        ctx.seed = seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if not training:
        return x
    return Dropout.apply(x, p, seed)
