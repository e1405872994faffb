# labs/lab4_production_slice/dropout.py | wrong everywhere | uniform4 makes its own fractions from tl.randint4x: `bits & 0x7FFFFFFF` leaves 31 bits, but they are multiplied by UNIT = 2**-32, so the numbers lie in [0, 0.5) instead of [0, 1) and p is compared with twice too dense numbers: a share of 2 p is dropped (20 % for p = 0.1, 60 % for p = 0.3), and for p >= 0.5 practically everything is 0. Forward and backward agree. Shows for every 0 < p < 1; p = 0 and p = 1 are right. It should be all 32 bits times 2**-32, or better (bits >> 8) times 2**-24, or simply tl.rand4x.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (256, 512, 1024) for warps in (4, 8)]

POSITIVE = tl.constexpr(0x7FFFFFFF)  # all bits but the sign of an int32
UNIT = tl.constexpr(2.0**-32)


@triton.jit
def uniform4(seed, counters, BLOCK: tl.constexpr):
    """Return 4 * BLOCK fractions; those of counters[j] are at 4 * j to 4 * j + 3."""
    first, second, third, fourth = tl.randint4x(seed, counters)
    bits = tl.reshape(tl.join(tl.join(first, second), tl.join(third, fourth)), (4 * BLOCK,))
    return (bits & POSITIVE).to(tl.float32) * UNIT


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    x and y are n contiguous elements of one dtype. Program k has BLOCK counters of the generator, from
    k * BLOCK on, and four elements for each counter.
    """
    program = tl.program_id(axis=0)
    random = uniform4(seed, program * BLOCK + tl.arange(0, BLOCK), BLOCK)
    keep = random >= tl.cast(p, tl.float32)

    offs = program.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0).to(tl.float32)
    y = tl.where(keep, x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=offs < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 0.0 if p >= 1.0 else 1.0 / (1.0 - p)

    def grid(meta):
        return (triton.cdiv(n, 4 * meta["BLOCK"]),)

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
    if not training:
        return x
    return Dropout.apply(x, p, seed)
