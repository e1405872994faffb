# labs/lab4_production_slice/dropout.py | corner | Dropout.forward keeps `1.0 - p` in ctx.keep, and Dropout.backward hands ctx.keep to dropout_op as its p; it should hand on p itself. For p = 0.5, the default, the two are the same and all is right. For any other p dx has another choice and another scale than y (p = 0.1: only a tenth of dy comes through, times 10; p = 0: dx is 0; p = 1: dx is dy). dropout_forward and y are right for every p.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [
    triton.Config({"BLOCK": 512}, num_warps=4),
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 1024}, num_warps=8),
]


@triton.jit
def four_each(seed, counters):
    """Four random numbers for each counter, those of a counter next to each other."""
    a, b, c, d = tl.rand4x(seed, counters)
    return tl.interleave(tl.interleave(a, c), tl.interleave(b, d))


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0."""
    program = tl.program_id(axis=0)
    random = four_each(seed, program * BLOCK + tl.arange(0, BLOCK))
    offs = program.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    scaled = tl.load(x_ptr + offs, mask=offs < n, other=0.0).to(tl.float32) * tl.cast(scale, tl.float32)
    dropped = random < tl.cast(p, tl.float32)
    tl.store(y_ptr + offs, tl.where(dropped, 0.0, scaled).to(y_ptr.dtype.element_ty), mask=offs < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    keep = 1.0 - p
    scale = 1.0 / keep if keep > 0.0 else 0.0
    grid = lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)
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
        ctx.keep, ctx.seed = 1.0 - p, seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        dx = dropout_op(dy.contiguous(), ctx.keep, ctx.seed)
        return dx, None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if not training:
        return x
    return Dropout.apply(x, p, seed)
