# labs/lab4_production_slice/dropout.py | two mistakes | (1) dropout_kernel, `draw(seed, step * BLOCK, BLOCK)`: the counters lack the program's own start, so every program draws the same numbers and the choice repeats every 4 * BLOCK * STEPS = 2048 elements; it should be draw(seed, (program * STEPS + step) * BLOCK, BLOCK). (2) factor, `1.0 / (1.0 - p + TINY)`: the 1e-5 makes every kept value too small by a relative 1e-5 / (1 - p), which shows in fp32 (also p = 0 is not exact, and dx has it too); it should be 1 / (1 - p), with p = 1 as a case of its own.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

BLOCK = 128  # counters of a tile, so 512 elements
STEPS = 4  # tiles of a program
TINY = 1e-5


@triton.jit
def draw(seed, first, COUNT: tl.constexpr):
    """Return 4 * COUNT uniform numbers, from COUNT counters that begin with `first`."""
    a, b, c, d = tl.rand4x(seed, first + tl.arange(0, COUNT))
    ab = tl.join(a, b)
    cd = tl.join(c, d)
    return tl.reshape(tl.join(ab, cd), (4 * COUNT,))


@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr, STEPS: tl.constexpr):
    """Program k has STEPS tiles of 4 * BLOCK elements, one behind the other."""
    TILE: tl.constexpr = 4 * BLOCK
    limit = tl.cast(p, tl.float32)
    gain = tl.cast(scale, tl.float32)
    program = tl.program_id(axis=0)
    begin = program.to(tl.int64) * (STEPS * TILE)
    for step in tl.static_range(STEPS):
        elements = begin + step * TILE + tl.arange(0, TILE)
        exists = elements < n
        random = draw(seed, step * BLOCK, BLOCK)
        x = tl.load(x_ptr + elements, mask=exists, other=0.0).to(tl.float32)
        y = tl.where(random >= limit, x * gain, 0.0)
        tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=exists)


def factor(p: float) -> float:
    """What a kept element is multiplied by, for p from 0 to 1."""
    return 1.0 / (1.0 - p + TINY)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    launch = on(dropout_kernel, x)[(triton.cdiv(n, 4 * BLOCK * STEPS),)]
    launch(x, out, n, p, factor(p), seed, BLOCK=BLOCK, STEPS=STEPS)
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
        """Return y for x; p and seed are enough to find the choice again."""
        y = dropout_op(x, p, seed)
        ctx.settings = (p, seed)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        p, seed = ctx.settings
        dx = dropout_op(dy.contiguous(), p, seed)
        return dx, None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if training:
        return Dropout.apply(x, p, seed)
    return x
