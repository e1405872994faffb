# labs/lab4_production_slice/dropout.py | right | right: a program takes several tiles in a row, both numbers from the autotuner, and the counters are those of the whole tensor
"""Dropout without a mask; a program works on TURNS tiles, one behind the other."""

import itertools

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

SHAPES = list(itertools.product((256, 1024), (1, 4)))


@triton.jit
def uniform(seed, counters, BLOCK: tl.constexpr):
    """Four numbers for each counter, next to each other: 4 * BLOCK in all."""
    r0, r1, r2, r3 = tl.rand4x(seed, counters)
    return tl.reshape(tl.join(tl.join(r0, r1), tl.join(r2, r3)), (4 * BLOCK,))


@triton.autotune(
    configs=[triton.Config({"BLOCK": b, "TURNS": t}, num_warps=b // 128) for b, t in SHAPES], key=["n"]
)
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr, TURNS: tl.constexpr):
    """y[i] = x[i] * scale where the i-th number of seed is at least p, else 0."""
    limit = tl.cast(p, tl.float32)
    factor = tl.cast(scale, tl.float32)
    first_tile = tl.program_id(axis=0).to(tl.int64) * TURNS
    for turn in range(TURNS):
        first = (first_tile + turn) * BLOCK
        random = uniform(seed, first + tl.arange(0, BLOCK), BLOCK)
        at = first * 4 + tl.arange(0, 4 * BLOCK)
        x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
        y = tl.where(random >= limit, x * factor, 0.0)
        tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=at < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p, else 0."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 0.0 if p == 1 else 1.0 / (1.0 - p)
    grid = lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"] * meta["TURNS"]),)  # noqa: E731
    on(dropout_kernel, x)[grid](x, out, n, p, scale, seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient: the same choice, applied to dy."""
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
    """Differentiable dropout_forward; x itself where not training."""
    if not training:
        return x
    return Dropout.apply(x, p, seed)
