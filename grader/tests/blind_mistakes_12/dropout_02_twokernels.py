# labs/lab4_production_slice/dropout.py | wrong everywhere | the backward pass has a kernel of its own whose four numbers are joined in another order (a, b, c, d) than in the forward kernel (a, c, b, d), so dx has another choice than y for the second and third element of each counter; both must join alike; shows in the gradient of dropout for every p between 0 and 1, dropout_forward is right
"""Dropout: a kernel for the forward pass, and one for the gradient. No mask is stored."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

BLOCK = 512  # counters of a program; each gives four elements


@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y = x * scale or 0."""
    pid = tl.program_id(axis=0)
    a, b, c, d = tl.rand4x(seed, pid * BLOCK + tl.arange(0, BLOCK))
    ab = tl.join(a, b)
    cd = tl.join(c, d)
    random = tl.reshape(tl.join(ab, cd), (4 * BLOCK,))
    offs = pid.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    y = tl.where(random >= p, x * scale, 0.0)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def dropout_gradient_kernel(dy_ptr, dx_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """dx = dy * scale where x was kept, else 0: the numbers are drawn again."""
    pid = tl.program_id(axis=0)
    a, b, c, d = tl.rand4x(seed, pid * BLOCK + tl.arange(0, BLOCK))
    even = tl.join(a, c)
    odd = tl.join(b, d)
    random = tl.reshape(tl.join(even, odd), (4 * BLOCK,))
    offs = pid.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    mask = offs < n
    dy = tl.load(dy_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    dx = tl.where(random >= p, dy * scale, 0.0)
    tl.store(dx_ptr + offs, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def scale_of(p):
    """The factor of what is kept; with p = 1 that is nothing."""
    return 0.0 if p >= 1 else 1.0 / (1.0 - p)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    on(dropout_kernel, x)[(triton.cdiv(n, 4 * BLOCK),)](x, out, n, p, scale_of(p), seed, BLOCK=BLOCK)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient of dropout_forward."""
    if out is None:
        out = torch.empty_like(dy)
    n = dy.numel()
    on(dropout_gradient_kernel, dy)[(triton.cdiv(n, 4 * BLOCK),)](dy, out, n, p, scale_of(p), seed, BLOCK=BLOCK)
    return out


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """dropout_forward as an operator."""
    return dropout_forward(x, p=p, seed=seed)


@triton_op("course::dropout_gradient", mutates_args=())
def dropout_gradient_op(dy: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """dropout_backward as an operator."""
    return dropout_backward(dy, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    """The operators as one differentiable function."""

    @staticmethod
    def forward(ctx, x, p, seed):
        """Return y for x; p and seed are all that the gradient needs."""
        ctx.p = p
        ctx.seed = seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        dx = dropout_gradient_op(dy.contiguous(), ctx.p, ctx.seed)
        return dx, None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
