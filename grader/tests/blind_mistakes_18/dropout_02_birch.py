# labs/lab4_production_slice/dropout.py | right | right
"""Dropout without a stored mask: forward and backward are one function of the elements, p and seed."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [
    triton.Config({"BLOCK": 512, "CHUNKS": 1}, num_warps=4),
    triton.Config({"BLOCK": 512, "CHUNKS": 2}, num_warps=4),
    triton.Config({"BLOCK": 1024, "CHUNKS": 1}, num_warps=8),
]


@triton.jit
def four_each(seed, counters, BLOCK: tl.constexpr):
    """Return 4 * BLOCK numbers in [0, 1): those of a counter stand next to each other."""
    first, second, third, fourth = tl.rand4x(seed, counters)
    odd = tl.join(first, third)
    even = tl.join(second, fourth)
    return tl.reshape(tl.join(odd, even), (4 * BLOCK,))


@triton.jit
def thinned(values, chance, p, scale):
    """Return 0 where chance is below p, else the scaled value in fp32."""
    return tl.where(chance < p, 0.0, values.to(tl.float32) * scale)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr, CHUNKS: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    Counter c of the generator decides elements 4 c to 4 c + 3. A program has CHUNKS * BLOCK counters.
    """
    program = tl.program_id(axis=0)
    for chunk in tl.static_range(CHUNKS):
        run = program * CHUNKS + chunk
        chance = four_each(seed, run * BLOCK + tl.arange(0, BLOCK), BLOCK)
        element = run.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
        exists = element < n
        kept = thinned(tl.load(x_ptr + element, mask=exists, other=0.0), chance, p, scale)
        tl.store(y_ptr + element, kept.to(y_ptr.dtype.element_ty), mask=exists)


def factor(p: float) -> float:
    """Return what a kept element is multiplied by; at p = 1 none is kept."""
    if p >= 1:
        return 0.0
    return 1.0 / (1.0 - p)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    launch = on(dropout_kernel, x)[lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"] * meta["CHUNKS"]),)]
    launch(x, out, n, p, factor(p), seed)
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
        dx = dropout_op(dy.contiguous(), ctx.p, ctx.seed)
        return dx, None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if not training:
        return x
    return Dropout.apply(x, p, seed)
