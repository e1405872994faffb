# labs/lab4_production_slice/dropout.py | contract | In `dropout_forward`, `per = 16 // x.element_size()` draws eight numbers of 16 bits for a counter in fp16 and bf16 and four of 24 bits in fp32, so a seed gives another choice for fp32 than for the 16-bit dtypes. The README asks for the same choice for every dtype; PER should be the same for all (4, or 8). Each call for itself is a right dropout.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (256, 512) for warps in (4, 8)]


@triton.jit
def draw(seed, counters, BLOCK: tl.constexpr, PER: tl.constexpr):
    """PER random numbers in [0, 1) for each of BLOCK counters, those of a counter side by side.

    A counter gives 128 random bits: four numbers of 24 bits, which is what fp32 holds, or eight of 16 bits.
    """
    a, b, c, d = tl.randint4x(seed, counters)
    bits = tl.join(tl.join(a, b), tl.join(c, d)).to(tl.uint32, bitcast=True)
    if PER == 8:
        halves = tl.join(bits & 0xFFFF, bits >> 16)
        return tl.reshape(halves, (8 * BLOCK,)).to(tl.float32) * 1.52587890625e-05
    else:
        return tl.reshape(bits >> 8, (4 * BLOCK,)).to(tl.float32) * 5.9604644775390625e-08


@triton.autotune(configs=CONFIGS, key=["n", "PER"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, PER: tl.constexpr, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    x and y are n contiguous elements of one dtype. Program k has BLOCK counters of the generator, from
    k * BLOCK on, and PER elements for each: 16 bytes of a matrix, one load of a thread.
    """
    program = tl.program_id(axis=0)
    random = draw(seed, program * BLOCK + tl.arange(0, BLOCK), BLOCK, PER)
    elements = program.to(tl.int64) * (PER * BLOCK) + tl.arange(0, PER * BLOCK)
    inside = elements < n
    x = tl.load(x_ptr + elements, mask=inside, other=0.0).to(tl.float32)
    kept = random >= tl.cast(p, tl.float32)
    y = tl.where(kept, x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=inside)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    per = 16 // x.element_size()
    scale = 0.0 if p == 1.0 else 1.0 / (1.0 - p)
    grid = lambda meta: (triton.cdiv(n, per * meta["BLOCK"]),)  # noqa: E731
    on(dropout_kernel, x)[grid](x, out, n, p, scale, seed, PER=per)
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
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
