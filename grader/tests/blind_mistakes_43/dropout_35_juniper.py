# labs/lab4_production_slice/dropout.py | two mistakes | (1) In `dropout_kernel` the counters are `(program + part) * BLOCK`; it should be `(program * PARTS + part) * BLOCK`: the second part of a program has the random numbers of the first part of the next one, so the choice repeats itself (and depends on the config) as soon as there are two programs, n > 2048 or 4096. (2) `dropout` returns `Dropout.apply(x, p if training else 0.0, seed)`; with `training=False` it should return `x` itself, and this is a copy.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

# A program takes PARTS blocks of counters, one after the other, and four elements for each counter.
CONFIGS = [
    triton.Config({"BLOCK": block, "PARTS": parts}, num_warps=4)
    for block, parts in ((256, 2), (512, 2), (256, 4))
]


@triton.jit
def random_numbers(seed, first, BLOCK: tl.constexpr):
    """4 * BLOCK numbers, uniform in [0, 1): those of counter `first`, then those of the next, and so on."""
    a, b, c, d = tl.rand4x(seed, first + tl.arange(0, BLOCK))
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (4 * BLOCK,))


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    """y[i] = x[i] * scale where the random number of element i is at least p, else 0.

    x and y are n contiguous elements of one dtype.
    """
    program = tl.program_id(axis=0)
    chance = tl.cast(p, tl.float32)
    factor = tl.cast(scale, tl.float32)
    for part in tl.static_range(PARTS):
        random = random_numbers(seed, (program + part) * BLOCK, BLOCK)
        first = (program.to(tl.int64) * PARTS + part) * (4 * BLOCK)
        offsets = first + tl.arange(0, 4 * BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0).to(tl.float32)
        y = tl.where(random >= chance, x * factor, 0.0)
        tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=offsets < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    grid = lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"] * meta["PARTS"]),)  # noqa: E731
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
    """Differentiable dropout_forward, also under torch.compile; nothing is dropped where not `training`."""
    return Dropout.apply(x, p if training else 0.0, seed)
