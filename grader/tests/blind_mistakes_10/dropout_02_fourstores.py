# labs/lab4_production_slice/dropout.py | corner | the backward pass of the autograd function takes the choice from the saved result: gradient_kernel says `y != 0`. An element of x that is 0 and kept has y = 0, and its gradient becomes 0; must be dy / (1 - p), by drawing the same numbers again. Shows only where x has zeros (a ReLU in front, or p = 0 and a zero in x).
"""Dropout, four quarters of a program's elements loaded and stored one after the other."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((512, 4), (1024, 4), (1024, 8))]


@triton.jit
def keep_or_drop(x_ptr, y_ptr, offs, n, number, p, scale):
    """One element of each four: load, choose, store."""
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    y = tl.where(number >= p, x * scale, 0.0)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """Counter c decides elements 4 c to 4 c + 3."""
    counters = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    a, b, c, d = tl.rand4x(seed, counters)
    first = counters.to(tl.int64) * 4
    p32 = tl.cast(p, tl.float32)
    keep_or_drop(x_ptr, y_ptr, first, n, a, p32, scale)
    keep_or_drop(x_ptr, y_ptr, first + 1, n, b, p32, scale)
    keep_or_drop(x_ptr, y_ptr, first + 2, n, c, p32, scale)
    keep_or_drop(x_ptr, y_ptr, first + 3, n, d, p32, scale)


@triton.jit
def gradient_kernel(dy_ptr, y_ptr, dx_ptr, n, scale, BLOCK: tl.constexpr):
    """dx = dy * scale where the forward pass kept the element; reading y is cheaper than Philox."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    dy = tl.load(dy_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask, other=0.0)
    dx = tl.where(y != 0, dy * scale, 0.0)
    tl.store(dx_ptr + offs, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def factor(p):
    """1 / (1 - p), and 0 where nothing is kept."""
    return 0.0 if p == 1 else 1 / (1 - p)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p), or 0."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    grid = lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)
    on(dropout_kernel, x)[grid](x, out, n, p, factor(p), seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient where only the seed is known."""
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """dropout_forward as an operator that torch.compile can look into."""
    return dropout_forward(x, p=p, seed=seed)


@triton_op("course::dropout_gradient", mutates_args=())
def gradient_op(dy: torch.Tensor, y: torch.Tensor, p: float) -> torch.Tensor:
    """The gradient from dy and the result of the forward pass."""
    dx = torch.empty_like(dy)
    n = dy.numel()
    on(gradient_kernel, dy)[(triton.cdiv(n, 2048),)](dy, y, dx, n, factor(p), BLOCK=2048)
    return dx


class Dropout(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x, p, seed):
        """Return y for x."""
        y = dropout_op(x, p, seed)
        ctx.save_for_backward(y)
        ctx.p = p
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        (y,) = ctx.saved_tensors
        return gradient_op(dy.contiguous(), y, ctx.p), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
