# labs/lab4_production_slice/dropout.py | wrong everywhere | dropout_kernel draws with tl.randn4x, whose numbers are normal (mean 0, deviation 1), instead of tl.rand4x, whose numbers are uniform from 0 up to 1; so the share of kept elements is the chance that a normal number is at least p (p = 0.5: 0.31 instead of 0.5; p = 0.1: 0.46 instead of 0.9; p = 0: half are dropped). Shows for every p below 1, for the small sizes (1, 63) only by the share over many seeds; scale, seed, and the choice of the backward pass are right. It should be tl.rand4x(seed, counters)
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.jit
def keep_or_drop(x_ptr, y_ptr, elements, n, random, p, scale):
    """One element for each counter: scaled where its number is at least p, else 0."""
    inside = elements < n
    x = tl.load(x_ptr + elements, mask=inside, other=0.0).to(tl.float32)
    y = tl.where(random >= p, x * scale, 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    Program k has BLOCK counters, from k * BLOCK on. Number j of counter c belongs to element 4 * c + j.
    """
    program = tl.program_id(axis=0)
    counters = program * BLOCK + tl.arange(0, BLOCK)
    number_0, number_1, number_2, number_3 = tl.randn4x(seed, counters)
    p = tl.cast(p, tl.float32)
    scale = tl.cast(scale, tl.float32)
    elements = counters.to(tl.int64) * 4
    keep_or_drop(x_ptr, y_ptr, elements, n, number_0, p, scale)
    keep_or_drop(x_ptr, y_ptr, elements + 1, n, number_1, p, scale)
    keep_or_drop(x_ptr, y_ptr, elements + 2, n, number_2, p, scale)
    keep_or_drop(x_ptr, y_ptr, elements + 3, n, number_3, p, scale)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """Dropout of x, with probability p for each element; the same seed gives the same choice."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    scale = 0.0 if p == 1.0 else 1.0 / (1.0 - p)
    launch = on(dropout_kernel, x)[lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)]
    launch(x, out, n, p, scale, seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient of dropout: the same function of dy, with the choice of the forward pass."""
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
