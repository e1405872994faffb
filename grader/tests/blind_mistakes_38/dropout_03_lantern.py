# labs/lab4_production_slice/dropout.py | right | right
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

# STEPS pieces of four times COUNTERS elements, one behind the other, are the work of a program.
CONFIGS = [
    triton.Config({"COUNTERS": 512, "STEPS": 1}, num_warps=4),
    triton.Config({"COUNTERS": 256, "STEPS": 2}, num_warps=4),
    triton.Config({"COUNTERS": 512, "STEPS": 2}, num_warps=8),
]


@triton.jit
def uniform(seed, counters, COUNTERS: tl.constexpr):
    """Return 4 * COUNTERS numbers from [0, 1): those of a counter stand next to each other."""
    a, b, c, d = tl.rand4x(seed, counters)
    return tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), (4 * COUNTERS,))


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, COUNTERS: tl.constexpr, STEPS: tl.constexpr):
    """y[i] = x[i] * scale where the random number of element i is at least p, else 0.

    x and y are n contiguous elements. Element i has its number from counter i // 4, whatever the config.
    """
    p = tl.cast(p, tl.float32)
    scale = tl.cast(scale, tl.float32)
    for step in tl.static_range(STEPS):
        piece = tl.program_id(axis=0) * STEPS + step
        drawn = uniform(seed, piece * COUNTERS + tl.arange(0, COUNTERS), COUNTERS)
        at = piece.to(tl.int64) * (4 * COUNTERS) + tl.arange(0, 4 * COUNTERS)
        x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
        y = tl.where(drawn >= p, x * scale, 0.0)
        tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=at < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    kept_share = 1.0 - p
    scale = 1.0 / kept_share if kept_share > 0.0 else 0.0
    grid = lambda meta: (triton.cdiv(n, 4 * meta["COUNTERS"] * meta["STEPS"]),)
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
