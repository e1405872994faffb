# labs/lab4_production_slice/dropout.py | wrong everywhere | In dropout_kernel the upper pair of numbers is chosen by `lane > 2`; it should be `lane >= 2`. Lane 2 is even and takes the first number like lane 0, so elements 4 c and 4 c + 2 always have the same choice, and the third number of a counter is never used. Forward and gradient have the same wrong choice, for every seed, size above 2 and p other than 0 and 1; the share of kept elements and the scale are right.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    A row of the tile is a counter, its four lanes are the elements that it decides.
    """
    counters = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    first, second, third, fourth = tl.rand4x(seed, counters)
    lane = tl.arange(0, 4)[None, :]
    odd = lane % 2 == 1
    lower = tl.where(odd, second[:, None], first[:, None])
    upper = tl.where(odd, fourth[:, None], third[:, None])
    random = tl.where(lane > 2, upper, lower)

    elements = counters.to(tl.int64)[:, None] * 4 + lane
    inside = elements < n
    x = tl.load(x_ptr + elements, mask=inside, other=0.0).to(tl.float32)
    keep = random >= tl.cast(p, tl.float32)
    y = tl.where(keep, x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=inside)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0
    on(dropout_kernel, x)[lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)](x, out, n, p, scale, seed)
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
