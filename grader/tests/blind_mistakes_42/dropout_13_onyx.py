# labs/lab4_production_slice/dropout.py | corner | In `uniform`, `tl.rand4x(seed + program, tl.arange(0, COUNT))` adds the program to the seed and counts within the program; it should be `tl.rand4x(seed, program * COUNT + tl.arange(0, COUNT))`. Seed s + 1 gives the choice of seed s moved by 4096 elements; it shows only where the choices of neighbouring seeds are compared on more than 4096 elements. All else holds (share, factor, configs, dtypes, backward pass).
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

COUNTERS = 1024  # of a program, the same in every config; a counter gives four numbers
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (2, 4, 8)]


@triton.jit
def uniform(seed, program, COUNT: tl.constexpr):
    """Return 4 * COUNT random numbers in [0, 1) for a program, those of a counter next to each other."""
    a, b, c, d = tl.rand4x(seed + program, tl.arange(0, COUNT))
    return tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), (4 * COUNT,))


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, COUNT: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    x and y are n contiguous elements of one dtype. A program has 4 * COUNT of them; p and scale may come as
    fp64 under torch.compile, and both the numbers and the products are fp32.
    """
    program = tl.program_id(axis=0)
    keep = uniform(seed, program, COUNT) >= tl.cast(p, tl.float32)
    at = program.to(tl.int64) * (4 * COUNT) + tl.arange(0, 4 * COUNT)
    exists = at < n
    x = tl.load(x_ptr + at, mask=exists, other=0.0).to(tl.float32)
    y = tl.where(keep, x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=exists)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0  # nothing is kept where p is 1
    programs = triton.cdiv(n, 4 * COUNTERS)
    on(dropout_kernel, x)[(programs,)](x, out, n, p, scale, seed, COUNT=COUNTERS)
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
    return Dropout.apply(x, p, seed) if training else x
