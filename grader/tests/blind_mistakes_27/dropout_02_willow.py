# labs/lab4_production_slice/dropout.py | wrong everywhere | in dropout_kernel what is kept is divided by `scale`, which _scale_of has as 1 / (1 - p) already: `x / factor` gives x * (1 - p) instead of x / (1 - p), and should be `x * factor`. Shows in dropout_forward and in both results of dropout for every p between 0 and 1; only p = 0, p = 1 and training=False are right.
"""Dropout, and its gradient from the same random numbers: seed and place of an element decide, nothing is stored."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

PER_COUNTER = tl.constexpr(4)  # numbers that one call of the generator gives
CONFIGS = [
    triton.Config({"BLOCK": 256}, num_warps=4),
    triton.Config({"BLOCK": 512}, num_warps=4),
    triton.Config({"BLOCK": 1024}, num_warps=8),
]


@triton.jit
def numbers(seed, counters):
    """Four numbers for each counter, next to each other, uniform in [0, 1)."""
    first, second, third, fourth = tl.rand4x(seed, counters)
    return tl.interleave(tl.interleave(first, third), tl.interleave(second, fourth))


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """Keep x[i] where the i-th number of `seed` is at least p, else 0; BLOCK counters for each program."""
    program = tl.program_id(axis=0)
    random = numbers(seed, program * BLOCK + tl.arange(0, BLOCK))
    threshold = tl.cast(p, tl.float32)
    factor = tl.cast(scale, tl.float32)

    start = program.to(tl.int64) * (PER_COUNTER * BLOCK)
    offs = start + tl.arange(0, PER_COUNTER * BLOCK)
    inside = offs < n
    x = tl.load(x_ptr + offs, mask=inside, other=0.0).to(tl.float32)
    kept = tl.where(random < threshold, 0.0, x / factor)
    tl.store(y_ptr + offs, kept.to(y_ptr.dtype.element_ty), mask=inside)


def _scale_of(p):
    """1 / (1 - p), and 0 where nothing is kept."""
    if p == 1:
        return 0.0
    return 1.0 / (1.0 - p)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()

    programs = lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)  # noqa: E731
    on(dropout_kernel, x)[programs](x, out, n, p, _scale_of(p), seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient of dropout, which treats dy as the forward pass treats x."""
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
