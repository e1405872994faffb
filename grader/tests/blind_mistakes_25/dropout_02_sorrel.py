# labs/lab4_production_slice/dropout.py | corner | Dropout.backward, `dy.flatten()`: it makes one axis but no contiguous copy where a view is possible, so a dy expanded from a scalar (as from sum(), stride 0) or every second column of a matrix twice as wide (stride 2) reaches the kernel with its stride and is read at wrong addresses, out of bounds for the expanded one: dx is wrong; contiguous and transposed dy are right. It should be dy.contiguous().
"""Dropout that draws its choice twice instead of keeping it."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

QUADS = 512  # counters of one program; each counter decides four neighbours


@triton.jit
def numbers_of(seed, counter, QUADS: tl.constexpr):
    """(QUADS, 4) numbers from 0 up to 1: a line for each counter."""
    n0, n1, n2, n3 = tl.rand4x(seed, counter)
    return tl.reshape(tl.join(tl.join(n0, n1), tl.join(n2, n3)), (QUADS, 4))


@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, QUADS: tl.constexpr):
    """One (QUADS, 4) tile: scaled where its number is at least p, 0 elsewhere."""
    program = tl.program_id(axis=0)
    quad = tl.arange(0, QUADS)
    numbers = numbers_of(seed, program * QUADS + quad, QUADS)

    begin = program.to(tl.int64) * (4 * QUADS)
    element = begin + quad[:, None] * 4 + tl.arange(0, 4)[None, :]
    inside = element < n
    x = tl.load(x_ptr + element, mask=inside, other=0.0).to(tl.float32)
    # p and scale are fp64 when torch.compile passes them
    scaled = x * tl.cast(scale, tl.float32)
    y = tl.where(numbers >= tl.cast(p, tl.float32), scaled, 0.0)
    tl.store(y_ptr + element, y.to(y_ptr.dtype.element_ty), mask=inside)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if p == 1:
        scale = 0.0
    else:
        scale = 1.0 / (1.0 - p)
    programs = triton.cdiv(n, 4 * QUADS)
    on(dropout_kernel, x)[(programs,)](x, out, n, p, scale, seed, QUADS=QUADS)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """What was kept gets dy / (1 - p), the rest 0: dropout of dy with the same seed."""
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
        ctx.p, ctx.seed = p, seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        # The kernel knows no rows: one axis with all elements in their order.
        line = dy.flatten()
        dx = dropout_op(line, ctx.p, ctx.seed)
        return dx.view_as(dy), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if not training:
        return x
    return Dropout.apply(x, p, seed)
