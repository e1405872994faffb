# labs/lab4_production_slice/dropout.py | wrong everywhere | tl.rand4x gets the counters `program_id + arange(0, BLOCK)`, so programs draw nearly the same numbers as their neighbours, shifted by one counter; must be program_id * BLOCK + arange, i.e. `counter`. Shows from the second program on (n above 1024).
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

BLOCK = 256  # counters of a program


@triton.jit
def _one(x_ptr, y_ptr, at, n, draw, p, scale):
    """One element of each counter."""
    keep = draw >= p
    value = tl.load(x_ptr + at, mask=(at < n) & keep, other=0.0).to(tl.float32) * scale
    tl.store(y_ptr + at, value.to(y_ptr.dtype.element_ty), mask=at < n)


@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y = x * scale where the number of the element is at least p; counter c has elements 4 c to 4 c + 3."""
    counter = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    first = 4 * counter
    a, b, c, d = tl.rand4x(seed, tl.program_id(axis=0) + tl.arange(0, BLOCK))
    _one(x_ptr, y_ptr, first, n, a, p, scale)
    _one(x_ptr, y_ptr, first + 1, n, b, p, scale)
    _one(x_ptr, y_ptr, first + 2, n, c, p, scale)
    _one(x_ptr, y_ptr, first + 3, n, d, p, scale)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    scale = 0.0 if p == 1 else 1.0 / (1.0 - p)
    programs = triton.cdiv(n, 4 * BLOCK)
    if programs > 0:
        on(dropout_kernel, x)[(programs,)](x, out, n, p, scale, seed, BLOCK=BLOCK, num_warps=4)
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
