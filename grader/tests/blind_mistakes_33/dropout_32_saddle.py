# labs/lab4_production_slice/dropout.py | wrong everywhere | `uniform` takes the top bit away and then shifts by 8, `((bits & 0x7FFFFFFF) >> 8)`, which leaves 23 bits, and multiplies by 2^-24: the numbers are uniform in [0, 0.5) instead of [0, 1), so the share of dropped elements is min(1, 2 p) instead of p (p = 0.1 drops 20 %, p = 0.5 and 0.75 drop everything); for every 0 < p < 1, right for p = 0, p = 1 and training=False. It should be a shift by 7, or the factor 2^-23
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

COUNTERS = 512  # of a program


@triton.jit
def uniform(bits):
    """Turn random bits into fp32 numbers from 0 up to 1: as many bits as fp32 holds without rounding."""
    return ((bits & 0x7FFFFFFF) >> 8).to(tl.float32) * 5.9604644775390625e-08


@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    x and y are n contiguous elements of one dtype. Program k has BLOCK counters of the generator, from
    k * BLOCK on, and four elements for each counter.
    """
    program = tl.program_id(axis=0)
    counters = program * BLOCK + tl.arange(0, BLOCK)
    a, b, c, d = tl.randint4x(seed, counters)
    bits = tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), (4 * BLOCK,))
    elements = program.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    inside = elements < n
    x = tl.load(x_ptr + elements, mask=inside, other=0.0).to(tl.float32)
    kept = uniform(bits) >= tl.cast(p, tl.float32)
    y = tl.where(kept, x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=inside)


def scale_of(p: float) -> float:
    """Return the factor of what is kept; with p = 1 nothing is."""
    return 1.0 / (1.0 - p) if p < 1.0 else 0.0


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    programs = triton.cdiv(n, 4 * COUNTERS)
    on(dropout_kernel, x)[(programs,)](x, out, n, p, scale_of(p), seed, BLOCK=COUNTERS, num_warps=4)
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
    if training:
        return Dropout.apply(x, p, seed)
    return x
