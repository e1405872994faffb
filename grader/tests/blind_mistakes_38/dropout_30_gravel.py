# labs/lab4_production_slice/dropout.py | right | right
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

# Counters of a program, and its warps: 16 elements for each thread, or 8.
CONFIGS = [
    triton.Config({"BLOCK": counters}, num_warps=warps)
    for counters, warps in ((256, 4), (512, 4), (1024, 8))
]


@triton.jit
def random_numbers(seed, first, COUNT: tl.constexpr):
    """Numbers of the counters from `first` on, COUNT of them, four for each: all of a counter, then the next."""
    one, two, three, four = tl.rand4x(seed, first + tl.arange(0, COUNT))
    return tl.interleave(tl.interleave(one, three), tl.interleave(two, four))


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where number i % 4 of counter i // 4 is at least p, else 0."""
    program = tl.program_id(axis=0)
    kept = random_numbers(seed, program * BLOCK, BLOCK) >= tl.cast(p, tl.float32)

    start = program.to(tl.int64) * (4 * BLOCK)
    i = start + tl.arange(0, 4 * BLOCK)
    inside = i < n
    x = tl.load(x_ptr + i, mask=inside, other=0.0)
    scaled = x.to(tl.float32) * tl.cast(scale, tl.float32)
    tl.store(y_ptr + i, tl.where(kept, scaled, 0.0).to(y_ptr.dtype.element_ty), mask=inside)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    if out is None:
        out = torch.empty_like(x)
    scale = 0.0 if p == 1 else 1.0 / (1.0 - p)
    n = x.numel()

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
        ctx.choice = (p, seed)
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        dx = dropout_op(dy.contiguous(), *ctx.choice)
        return dx, None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
