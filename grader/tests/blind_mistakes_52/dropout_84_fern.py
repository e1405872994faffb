# labs/lab4_production_slice/dropout.py | contract | In `dropout`, `rate = p if training else 0.0` followed by `Dropout.apply(x, rate, seed)` gives a new tensor, a copy, with `training=False`; the README says that the result is `x` itself, so it should be `return Dropout.apply(x, p, seed) if training else x`. The numbers and the gradient are right.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.jit
def four_each(seed, counters, COUNT: tl.constexpr):
    """Return 4 * COUNT uniform numbers: those of a counter stand next to each other."""
    a, b, c, d = tl.rand4x(seed, counters)
    pairs = tl.join(tl.join(a, b), tl.join(c, d))
    return tl.reshape(pairs, (4 * COUNT,))


@triton.jit
def kept_and_scaled(x, random, p, scale):
    """x * scale where the number is at least p, else 0."""
    return tl.where(random >= tl.cast(p, tl.float32), x.to(tl.float32) * tl.cast(scale, tl.float32), 0.0)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    x and y are n contiguous elements of one dtype; the numbers are uniform in [0, 1). Program k has BLOCK
    counters of the generator, from k * BLOCK on, and four elements for each counter.
    """
    program = tl.program_id(axis=0)
    random = four_each(seed, program * BLOCK + tl.arange(0, BLOCK), BLOCK)
    elements = program.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    x = tl.load(x_ptr + elements, mask=elements < n, other=0.0)
    y = kept_and_scaled(x, random, p, scale)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=elements < n)


def factor_of(p):
    """Return what a kept element is multiplied by; with p = 1 there is none."""
    return 1.0 / (1.0 - p) if p < 1.0 else 0.0


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    grid = lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)
    on(dropout_kernel, x)[grid](x, out, n, p, factor_of(p), seed)
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
    """Differentiable dropout_forward, also under torch.compile; nothing is dropped where not `training`."""
    rate = p if training else 0.0
    return Dropout.apply(x, rate, seed)
