# lab4_production_slice/dropout.py | corner | the four numbers of a counter go to four blocks one behind the other (`offs = base + k * BLOCK + lane`), so the choice for an element depends on BLOCK: with BLOCK 512 and 1024 the same seed drops other elements (each single config has the right share and factor) | "A seed gives the same choice in every call, on every machine, for every dtype and config" and "Counter c decides elements 4 c to 4 c + 3"; shows only between two calls whose autotuned BLOCK differs (compare the result of the two configs; forward and backward may disagree on a GPU)
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.jit
def apply_dropout(x_ptr, y_ptr, offs, random, n, p, scale):
    ok = offs < n
    x = tl.load(x_ptr + offs, mask=ok, other=0.0)
    y = tl.where(random < p, 0.0, x.to(tl.float32) * scale)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=ok)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the random number is at least p, else 0."""
    program = tl.program_id(axis=0)
    lane = tl.arange(0, BLOCK)
    r0, r1, r2, r3 = tl.rand4x(seed, program * BLOCK + lane)
    base = program.to(tl.int64) * (4 * BLOCK)
    apply_dropout(x_ptr, y_ptr, base + lane, r0, n, p, scale)
    apply_dropout(x_ptr, y_ptr, base + BLOCK + lane, r1, n, p, scale)
    apply_dropout(x_ptr, y_ptr, base + 2 * BLOCK + lane, r2, n, p, scale)
    apply_dropout(x_ptr, y_ptr, base + 3 * BLOCK + lane, r3, n, p, scale)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    scale = 0.0
    if p != 1:
        scale = 1.0 / (1.0 - p)
    on(dropout_kernel, x)[lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)](x, out, n, p, scale, seed)
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
    return Dropout.apply(x, p, seed) if training else x
