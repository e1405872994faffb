# labs/lab4_production_slice/dropout.py | right | unusual: no join and no autotuner; a helper loads and stores the elements of one lane, every fourth element, four times for a program; drops where the number is below p; dropout_backward makes dy contiguous itself
"""Dropout: four elements for each counter of Philox, lane by lane.

Counter c decides the elements 4 c, 4 c + 1, 4 c + 2 and 4 c + 3, by its first, second, third and fourth number.
"""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

COUNTERS = 512


@triton.jit
def one_lane(x_ptr, y_ptr, at, n, number, p, scale):
    """Drop or scale the elements `at`, each by its number."""
    exists = at < n
    x = tl.load(x_ptr + at, mask=exists, other=0.0).to(tl.float32)
    kept = tl.where(number < p, 0.0, x * scale)
    tl.store(y_ptr + at, kept.to(y_ptr.dtype.element_ty), mask=exists)


@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, COUNTERS: tl.constexpr):
    """Program k has the counters from k * COUNTERS on."""
    counter = tl.program_id(axis=0) * COUNTERS + tl.arange(0, COUNTERS)
    first, second, third, fourth = tl.rand4x(seed, counter)
    at = counter.to(tl.int64) * 4
    one_lane(x_ptr, y_ptr, at, n, first, p, scale)
    one_lane(x_ptr, y_ptr, at + 1, n, second, p, scale)
    one_lane(x_ptr, y_ptr, at + 2, n, third, p, scale)
    one_lane(x_ptr, y_ptr, at + 3, n, fourth, p, scale)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    y = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 0.0
    if p < 1.0:
        scale = 1.0 / (1.0 - p)
    programs = triton.cdiv(triton.cdiv(n, 4), COUNTERS)
    on(dropout_kernel, x)[(programs,)](x, y, n, p, scale, seed, COUNTERS=COUNTERS)
    return y


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """dy / (1 - p) where the forward pass of this seed kept x, else 0."""
    return dropout_forward(dy.contiguous(), p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """dropout_forward as an operator that torch.compile can look into."""
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x, p, seed):
        """Return y for x."""
        ctx.seed = seed
        ctx.p = p
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        if not ctx.needs_input_grad[0]:
            return None, None, None
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if not training:
        return x
    return Dropout.apply(x, p, seed)
