# labs/lab4_production_slice/dropout.py | contract | dropout(): with training=False it applies the operator with p = 0, which returns a copy with equal values; the README says that the result is x itself.
"""Dropout: seed and counter decide, nothing is stored."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """A program has a tile of BLOCK x 4 elements: a counter for each of its rows, a number for each column."""
    first = tl.program_id(axis=0) * BLOCK
    counter = first + tl.arange(0, BLOCK)
    a, b, c, d = tl.rand4x(seed, counter)
    random = tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), (BLOCK, 4))
    element = counter.to(tl.int64)[:, None] * 4 + tl.arange(0, 4)[None, :]
    exists = element < n
    x = tl.load(x_ptr + element, mask=exists, other=0.0).to(tl.float32)
    dropped = random < tl.cast(p, tl.float32)
    y = tl.where(dropped, 0.0, x * tl.cast(scale, tl.float32))
    tl.store(y_ptr + element, y.to(y_ptr.dtype.element_ty), mask=exists)


def factor(p):
    """What a kept element is multiplied by; with p = 1 there is none."""
    if p == 1:
        return 0.0
    return 1.0 / (1.0 - p)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()

    def grid(meta):
        return (triton.cdiv(triton.cdiv(n, 4), meta["BLOCK"]),)

    on(dropout_kernel, x)[grid](x, out, n, p, factor(p), seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient of dropout."""
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
    """Differentiable dropout_forward; in evaluation every element is kept and nothing is scaled."""
    share = p if training else 0.0
    return Dropout.apply(x, share, seed)
