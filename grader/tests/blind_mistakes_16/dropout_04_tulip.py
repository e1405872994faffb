# labs/lab4_production_slice/dropout.py | right | right
"""Dropout without a stored mask, on blocks of counters by four."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

BLOCK = 512


@triton.jit
def four_numbers(seed, counters, BLOCK: tl.constexpr):
    """(BLOCK, 4) numbers from 0 up to 1; a row belongs to one counter."""
    r0, r1, r2, r3 = tl.rand4x(seed, counters)
    pairs = tl.join(tl.join(r0, r1), tl.join(r2, r3))
    return tl.reshape(pairs, (BLOCK, 4))


@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the number of element i is at least p, else 0."""
    counters = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    keep = four_numbers(seed, counters, BLOCK) >= p
    elements = counters.to(tl.int64)[:, None] * 4 + tl.arange(0, 4)[None, :]
    exists = elements < n
    x = tl.load(x_ptr + elements, mask=exists, other=0.0).to(tl.float32)
    y = tl.where(keep, x * scale, 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=exists)


def factor_of(p: float) -> float:
    """What a kept element is multiplied by."""
    if p == 1:
        return 0.0
    return 1.0 / (1.0 - p)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    programs = triton.cdiv(n, 4 * BLOCK)
    on(dropout_kernel, x)[(programs,)](x, out, n, p, factor_of(p), seed, BLOCK=BLOCK)
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
        p, seed = ctx.choice
        return dropout_op(dy.contiguous(), p, seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
