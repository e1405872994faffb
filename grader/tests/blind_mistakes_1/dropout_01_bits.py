# lab4_production_slice/dropout.py | everywhere | uniform() keeps 31 bits of each random integer (`bits & 0x7FFFFFFF`) but divides by 2^32 (SCALE = 2.3283064365386963e-10) instead of 2^31, so the numbers are uniform in [0, 0.5) and the share dropped is 2 * p (all of it from p = 0.5 on) | "y = x / (1 - p) with probability 1 - p and 0 with probability p" / "the numbers are uniform in [0, 1)"; the share of kept elements is wrong for all inputs with 0 < p < 1
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]
SCALE = tl.constexpr(2.3283064365386963e-10)


@triton.jit
def uniform(bits):
    """Turn random integers into fp32 numbers."""
    return (bits & 0x7FFFFFFF).to(tl.int32).to(tl.float32) * SCALE


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0."""
    program = tl.program_id(axis=0)
    counter = program * BLOCK + tl.arange(0, BLOCK)
    i0, i1, i2, i3 = tl.randint4x(seed, counter)
    even = tl.join(uniform(i0), uniform(i2))
    odd = tl.join(uniform(i1), uniform(i3))
    random = tl.reshape(tl.join(even, odd), (4 * BLOCK,))
    offs = program.to(tl.int64) * 4 * BLOCK + tl.arange(0, 4 * BLOCK)
    inside = offs < n
    x = tl.load(x_ptr + offs, mask=inside, other=0.0).to(tl.float32)
    y = tl.where(random >= p, x * scale, 0.0)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=inside)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1 / (1 - p) if p < 1 else 0.0

    def grid(meta):
        return (triton.cdiv(n, 4 * meta["BLOCK"]),)

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
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if not training:
        return x
    return Dropout.apply(x, p, seed)
