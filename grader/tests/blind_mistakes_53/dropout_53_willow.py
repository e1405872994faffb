# labs/lab4_production_slice/dropout.py | right | Nothing is wrong (lab 4, `dropout_forward` and `dropout`). Unusual: a program has several blocks of counters, unrolled by `tl.static_range(TURNS)` with TURNS from the config, and a jit helper draws the numbers; counter c still decides elements 4 c to 4 c + 3, so the choice does not depend on the config. p and scale are cast to fp32 in the kernel.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

# Elements of a program: 4 * BLOCK * TURNS.
CONFIGS = [
    triton.Config({"BLOCK": block, "TURNS": turns}, num_warps=4)
    for block, turns in ((256, 2), (512, 1), (512, 4), (1024, 1))
]


@triton.jit
def numbers_of(seed, counters, BLOCK: tl.constexpr):
    """Uniform numbers of [0, 1) for 4 * BLOCK elements in a row, four next to each other for each counter."""
    a, b, c, d = tl.rand4x(seed, counters)
    return tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), (4 * BLOCK,))


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr, TURNS: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    x and y are n contiguous elements of one dtype; the numbers are uniform in [0, 1). Program k has TURNS
    blocks of BLOCK counters of the generator, from k * TURNS * BLOCK on, and four elements for each counter.
    """
    program = tl.program_id(axis=0)
    # torch.compile passes numbers as fp64.
    threshold = tl.cast(p, tl.float32)
    factor = tl.cast(scale, tl.float32)
    for turn in tl.static_range(TURNS):
        block = program * TURNS + turn
        random = numbers_of(seed, block * BLOCK + tl.arange(0, BLOCK), BLOCK)
        elements = block.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
        exists = elements < n
        x = tl.load(x_ptr + elements, mask=exists, other=0.0).to(tl.float32)
        y = tl.where(random >= threshold, x * factor, 0.0)
        tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=exists)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    grid = lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"] * meta["TURNS"]),)  # noqa: E731
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
