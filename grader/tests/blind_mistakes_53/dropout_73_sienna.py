# labs/lab4_production_slice/dropout.py | corner | In `dropout_kernel`, `keep = random > tl.cast(p, tl.float32)` should be `>=`. The numbers have 16 bits, so one of 65536 is exactly 0: with p = 0 such elements are dropped (about 4 of 2^18), though p = 0 must keep every element. For other p the share changes by at most 2^-16, which is not visible.
"""Dropout without a stored mask, eight elements for each counter of the generator."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((256, 4), (512, 4), (512, 8))
]
EACH = tl.constexpr(8)  # elements for each counter: four words of 32 bits, two choices from a word


@triton.jit
def halves(word):
    """Return the two halves of a random word side by side, as numbers in [0, 1) in steps of 2^-16."""
    word = tl.cast(word, tl.uint32, bitcast=True)
    low = (word & 0xFFFF).to(tl.int32)
    high = (word >> 16).to(tl.int32)
    return tl.join(low, high).to(tl.float32) * 0.0000152587890625


@triton.jit
def uniform(seed, counters, BLOCK: tl.constexpr):
    """Return EACH numbers for each of BLOCK counters, one counter behind the other."""
    a, b, c, d = tl.randint4x(seed, counters)
    first = tl.join(halves(a), halves(b))
    second = tl.join(halves(c), halves(d))
    return tl.reshape(tl.join(first, second), (EACH * BLOCK,))


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` keeps it, else 0.

    x and y are n contiguous elements of one dtype. Program k has BLOCK counters of the generator, from
    k * BLOCK on; counter c decides elements 8 c to 8 c + 7, whatever BLOCK is.
    """
    program = tl.program_id(axis=0)
    random = uniform(seed, program * BLOCK + tl.arange(0, BLOCK), BLOCK)
    elements = program.to(tl.int64) * (EACH * BLOCK) + tl.arange(0, EACH * BLOCK)
    inside = elements < n
    x = tl.load(x_ptr + elements, mask=inside, other=0.0).to(tl.float32)
    keep = random > tl.cast(p, tl.float32)
    y = tl.where(keep, x * tl.cast(scale, tl.float32), 0.0)
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
    on(dropout_kernel, x)[lambda meta: (triton.cdiv(n, 8 * meta["BLOCK"]),)](x, out, n, p, scale, seed)
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
