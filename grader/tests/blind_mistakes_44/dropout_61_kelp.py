# labs/lab4_production_slice/dropout.py | right | Unusual: a two-dimensional tile with a row of four elements for each counter, the number picked by nested `tl.where` instead of `tl.join`, programs that stay and go over the blocks with a stride, and the comparison turned round (`< least` drops).
"""Dropout without a stored mask: a tile with a row for each counter, and programs that stay."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

PROGRAMS = 4096  # at most: what is left over is dealt out to them
CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((256, 4), (512, 4), (1024, 8))]


@triton.jit
def of_four(a, b, c, d, place):
    """Return a block with a row for each counter: a, b, c or d, as `place` says, which counts from 0 to 3."""
    low = tl.where(place == 0, a[:, None], b[:, None])
    high = tl.where(place == 2, c[:, None], d[:, None])
    return tl.where(place < 2, low, high)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    x and y are n contiguous elements of one dtype; the numbers are uniform in [0, 1). Counter c decides the
    elements 4 * c to 4 * c + 3, which are row c of a matrix with four columns. Program k takes the blocks of
    BLOCK counters with the numbers k, k + num_programs, ...
    """
    least = tl.cast(p, tl.float32)  # torch.compile passes p and scale as fp64
    factor = tl.cast(scale, tl.float32)
    place = tl.arange(0, 4)[None, :]
    for block in range(tl.program_id(axis=0), tl.cdiv(n, 4 * BLOCK), tl.num_programs(axis=0)):
        counters = tl.cast(block, tl.int64) * BLOCK + tl.arange(0, BLOCK)
        a, b, c, d = tl.rand4x(seed, counters.to(tl.int32))
        elements = counters[:, None] * 4 + place
        x = tl.load(x_ptr + elements, mask=elements < n, other=0.0).to(tl.float32)
        y = tl.where(of_four(a, b, c, d, place) < least, 0.0, x * factor)
        tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=elements < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    on(dropout_kernel, x)[lambda meta: (min(PROGRAMS, triton.cdiv(n, 4 * meta["BLOCK"])),)](
        x, out, n, p, scale, seed
    )
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
