# labs/lab4_production_slice/dropout.py | corner | In `dropout_kernel` the line `tl.where(random > tl.cast(p, tl.float32), ...)` keeps only numbers greater than p; it should be `>=`. The random numbers are 16 bits wide, so one in 65536 is exactly 0: with p = 0 about one element in 65536 is dropped though p = 0 must keep every element exactly (seen for large n such as 2^18); for other p the share is off by at most 2^-16.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (128, 256, 512)]
SHARE = tl.constexpr(8)  # elements for each counter of the generator


@triton.jit
def halves(word):
    """Return the two 16-bit numbers of each 32-bit word, side by side in a new last axis."""
    return tl.join(word & 0xFFFF, word >> 16)


@triton.jit
def uniform(seed, counters, BLOCK: tl.constexpr):
    """Return eight numbers for each of BLOCK counters, uniform in [0, 1) in steps of 2**-16, as one block."""
    a, b, c, d = tl.randint4x(seed, counters)
    pairs = tl.join(tl.join(halves(a), halves(b)), tl.join(halves(c), halves(d)))
    return tl.reshape(pairs, (SHARE * BLOCK,)).to(tl.float32) * 0.0000152587890625


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` lets it stay, else 0.

    x and y are n contiguous elements of one dtype. Program k has BLOCK counters of the generator, from
    k * BLOCK on, and eight elements for each counter: counter c decides elements 8 c to 8 c + 7.
    """
    program = tl.program_id(axis=0)
    random = uniform(seed, program * BLOCK + tl.arange(0, BLOCK), BLOCK)
    offs = program.to(tl.int64) * (SHARE * BLOCK) + tl.arange(0, SHARE * BLOCK)
    inside = offs < n
    x = tl.load(x_ptr + offs, mask=inside, other=0.0).to(tl.float32)
    y = tl.where(random > tl.cast(p, tl.float32), x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=inside)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0

    def grid(meta):
        return (triton.cdiv(n, 8 * meta["BLOCK"]),)

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
