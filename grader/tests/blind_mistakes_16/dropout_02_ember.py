# labs/lab4_production_slice/dropout.py | corner | In dropout_forward the number of counters is `groups = n // 4`, rounded down. For n = 1, 2, 3, and wherever n // 4 is a multiple of BLOCK and n is no multiple of 4, the last one to three elements are never written; it should be triton.cdiv(n, 4).
"""Dropout that remembers only its seed."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.jit
def keep_or_drop(x_ptr, y_ptr, where, n, random, p, scale):
    """Handle the elements at `where`, one for each number."""
    mask = where < n
    x = tl.load(x_ptr + where, mask=mask, other=0.0).to(tl.float32)
    y = tl.where(random >= p, x * scale, 0.0)
    tl.store(y_ptr + where, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """Counter c decides the elements 4 c, 4 c + 1, 4 c + 2 and 4 c + 3."""
    counters = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    r0, r1, r2, r3 = tl.rand4x(seed, counters)
    first = counters.to(tl.int64) * 4
    keep_or_drop(x_ptr, y_ptr, first, n, r0, p, scale)
    keep_or_drop(x_ptr, y_ptr, first + 1, n, r1, p, scale)
    keep_or_drop(x_ptr, y_ptr, first + 2, n, r2, p, scale)
    keep_or_drop(x_ptr, y_ptr, first + 3, n, r3, p, scale)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    groups = n // 4
    if p < 1:
        scale = 1 / (1 - p)
    else:
        scale = 0.0
    grid = lambda meta: (triton.cdiv(groups, meta["BLOCK"]),)
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
        ctx.p, ctx.seed = p, seed
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
