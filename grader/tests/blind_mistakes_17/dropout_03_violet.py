# labs/lab4_production_slice/dropout.py | two mistakes | (1) dropout_kernel: the counters are program + arange, not program * BLOCK + arange, so neighbouring programs draw nearly the same numbers, shifted by four elements, and the choice repeats for n > 4 * BLOCK. (2) Dropout.backward passes ctx.keep = 1 - p as the p of the operator, so dx has another choice and another factor than y unless p = 0.5; it should pass p.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": 512}, num_warps=4)]


@triton.jit
def uniform4(seed, counters, BLOCK: tl.constexpr):
    """Four numbers for each counter, next to each other."""
    a, b, c, d = tl.rand4x(seed, counters)
    return tl.join(tl.join(a, b), tl.join(c, d)).reshape(4 * BLOCK)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0."""
    program = tl.program_id(axis=0)
    counters = program + tl.arange(0, BLOCK)
    random = uniform4(seed, counters, BLOCK)
    i = program.to(tl.int64) * BLOCK * 4 + tl.arange(0, 4 * BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    y = tl.where(random < p, 0.0, x * scale)
    tl.store(y_ptr + i, y.to(y_ptr.dtype.element_ty), mask=i < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    keep = 1.0 - p
    scale = 1.0 / keep if keep > 0 else 0.0
    n = x.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"] * 4),)  # noqa: E731
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
        ctx.keep = 1.0 - p
        ctx.seed = seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        return dropout_op(dy.contiguous(), ctx.keep, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
