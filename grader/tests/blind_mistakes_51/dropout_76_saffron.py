# labs/lab4_production_slice/dropout.py | two mistakes | (1) In `dropout_kernel`, `random = draw(seed + program, BLOCK)`, with counters from 0 in each program, should pass the seed as it is and counters from `program * BLOCK` on: the choice of seed s + 1 is that of seed s moved by 2048 elements (n of several programs, neighbouring seeds). (2) In `dropout_forward`, `triton.cdiv(n // 4, COUNTERS)` should be `triton.cdiv(n, 4 * COUNTERS)`: for n = 2048 k + 1 to 2048 k + 3 the last elements are not written (n = 1: nothing is launched; n = 4099: the last three).
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

COUNTERS = 512  # of one program: 2048 elements


@triton.jit
def draw(seed, BLOCK: tl.constexpr):
    """A row of four uniform numbers for each of BLOCK counters, one after the other."""
    first, second, third, fourth = tl.rand4x(seed, tl.arange(0, BLOCK))
    fours = tl.join(tl.join(first, third), tl.join(second, fourth))
    return tl.reshape(fours, (4 * BLOCK,))


@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the random number of i is at least p, else 0."""
    program = tl.program_id(axis=0).to(tl.int64)
    random = draw(seed + program, BLOCK)
    elements = program * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
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
    scale = 0.0 if p == 1.0 else 1.0 / (1.0 - p)
    programs = triton.cdiv(n // 4, COUNTERS)
    on(dropout_kernel, x)[(programs,)](x, out, n, p, scale, seed, BLOCK=COUNTERS, num_warps=4)
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
        dx = dropout_op(dy.contiguous(), ctx.p, ctx.seed)
        return dx, None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if not training:
        return x
    return Dropout.apply(x, p, seed)
