# labs/lab4_production_slice/dropout.py | right | Unusual: at most 8192 programs walk over chunks in steps of the number of programs, the numbers of a counter are joined in an order of their own (a, c, b, d), and the grid is a nested function. Counter c decides elements 4 c to 4 c + 3 in every config.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

PROGRAMS = 8192  # at most; where there are more chunks than programs, each program walks over several
CONFIGS = [triton.Config({"COUNTERS": c}, num_warps=w) for c, w in ((256, 4), (512, 4), (1024, 8))]


@triton.jit
def draw(seed, counters, COUNTERS: tl.constexpr):
    """4 * COUNTERS random numbers in a row: four for each counter, side by side."""
    a, b, c, d = tl.rand4x(seed, counters)
    # A new last axis each time: the flat order is a0, c0, b0, d0, a1 and so on. Any fixed order will do.
    pairs = tl.join(tl.join(a, b), tl.join(c, d))
    return tl.reshape(pairs, (4 * COUNTERS,))


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, COUNTERS: tl.constexpr):
    """y[i] = x[i] * scale where the random number of element i is at least p, else 0.

    Counter c decides elements 4 * c to 4 * c + 3, whichever program has them. A chunk is COUNTERS of these;
    program k takes chunks k, k + programs, k + 2 * programs and so on.
    """
    threshold = tl.cast(p, tl.float32)
    factor = tl.cast(scale, tl.float32)
    lanes = tl.arange(0, 4 * COUNTERS)
    for chunk in range(tl.program_id(axis=0), tl.cdiv(n, 4 * COUNTERS), tl.num_programs(axis=0)):
        counters = tl.cast(chunk, tl.int32) * COUNTERS + tl.arange(0, COUNTERS)
        keep = draw(seed, counters, COUNTERS) >= threshold
        offsets = tl.cast(chunk, tl.int64) * (4 * COUNTERS) + lanes
        x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0).to(tl.float32)
        y = tl.where(keep, x * factor, 0.0).to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + offsets, y, mask=offsets < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape. The result goes to `out`, like x, where one is given.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 0.0 if p == 1 else 1.0 / (1.0 - p)

    def grid(meta):
        return (min(PROGRAMS, triton.cdiv(n, 4 * meta["COUNTERS"])),)

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
        ctx.settings = (p, seed)
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        p, seed = ctx.settings
        return dropout_op(dy.contiguous(), p, seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
