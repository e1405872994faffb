# labs/lab4_production_slice/dropout.py | contract | with training=False the function dropout runs the operator with p = 0 and returns a new tensor with the values of x, where the README wants x itself (`return x if not training else Dropout.apply(x, p, seed)`). The values and gradients are right; shows only with training=False.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.jit
def drop(x_ptr, y_ptr, elements, n, random, p, scale):
    """Keep or drop these elements, by one random number for each."""
    x = tl.load(x_ptr + elements, mask=elements < n, other=0.0).to(tl.float32)
    y = tl.where(random >= p, x * scale, 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=elements < n)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    Counter c of the generator gives the numbers of elements 4 c to 4 c + 3, in this order.
    """
    counters = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    first = counters.to(tl.int64) * 4
    limit = tl.cast(p, tl.float32)
    factor = tl.cast(scale, tl.float32)
    r0, r1, r2, r3 = tl.rand4x(seed, counters)
    drop(x_ptr, y_ptr, first, n, r0, limit, factor)
    drop(x_ptr, y_ptr, first + 1, n, r1, limit, factor)
    drop(x_ptr, y_ptr, first + 2, n, r2, limit, factor)
    drop(x_ptr, y_ptr, first + 3, n, r3, limit, factor)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    scale = 0.0 if p == 1.0 else 1.0 / (1.0 - p)

    grid = lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)  # noqa: E731
    on(dropout_kernel, x)[grid](x, out, n, p, scale, seed)
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
        ctx.p, ctx.seed = p, seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile."""
    chance = p if training else 0.0
    return Dropout.apply(x, chance, seed)
