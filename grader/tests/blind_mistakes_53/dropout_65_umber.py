# labs/lab4_production_slice/dropout.py | right | Nothing is wrong. Unusual: at most 8192 programs that go on over tiles in steps of the grid, two-dimensional tiles of BLOCK counters by 4 elements (one reshape of joined numbers to (BLOCK, 4)), a helper function for the numbers, and the count of tiles in int64; the choice depends on seed and element alone.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((256, 4), (512, 4), (1024, 8))
]
PROGRAMS = 8192  # at most; each goes on to further tiles


@triton.jit
def four_numbers(seed, counters, BLOCK: tl.constexpr):
    """Return a (BLOCK, 4) tile of numbers, uniform in [0, 1): a row of it for each counter."""
    a, b, c, d = tl.rand4x(seed, counters)
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (BLOCK, 4))


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    x and y are n contiguous elements of one dtype. Counter c of the generator decides elements 4 c to
    4 c + 3. A tile has BLOCK counters; program k has tile k and, in steps of the grid, others.
    """
    lowest = tl.cast(p, tl.float32)
    factor = tl.cast(scale, tl.float32)
    four = tl.arange(0, 4)[None, :]
    tiles = tl.cast(tl.cdiv(tl.cast(n, tl.int64), 4 * BLOCK), tl.int32)
    for tile in range(tl.program_id(axis=0), tiles, tl.num_programs(axis=0)):
        counters = tile * BLOCK + tl.arange(0, BLOCK)
        elements = counters[:, None].to(tl.int64) * 4 + four
        inside = elements < n
        keep = four_numbers(seed, counters, BLOCK) >= lowest
        x = tl.load(x_ptr + elements, mask=inside, other=0.0).to(tl.float32)
        y = tl.where(keep, x * factor, 0.0)
        tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=inside)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0

    grid = lambda meta: (min(triton.cdiv(n, 4 * meta["BLOCK"]), PROGRAMS),)
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
