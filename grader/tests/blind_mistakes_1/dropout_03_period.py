# lab4_production_slice/dropout.py | two | (1) the counters are tl.arange(0, BLOCK) in every program (program * BLOCK is missing), so the choice repeats with a period of 4 * BLOCK elements; (2) for p = 1 dropout_forward returns torch.zeros_like(x) before it launches anything, so a given `out` stays unwritten | (1) "Counter c decides elements 4 c to 4 c + 3", "each element for itself": shows for n > 4 * BLOCK and 0 < p < 1; (2) "`out` ... are written where they are given. ... returns the tensors that it wrote" and "p = 1 gives zeros": shows for p = 1 with out given
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0."""
    pid = tl.program_id(0).to(tl.int64)
    counters = tl.arange(0, BLOCK)
    a, b, c, d = tl.rand4x(seed, counters)
    ab = tl.join(a, b)
    cd = tl.join(c, d)
    random = tl.join(ab, cd).reshape(BLOCK * 4)
    idx = pid * BLOCK * 4 + tl.arange(0, BLOCK * 4)
    x = tl.load(x_ptr + idx, mask=idx < n).to(tl.float32)
    keep = random >= p
    tl.store(y_ptr + idx, tl.where(keep, x * scale, 0).to(y_ptr.dtype.element_ty), mask=idx < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    if p == 1:
        return torch.zeros_like(x)
    y = torch.empty_like(x) if out is None else out
    total = x.numel()
    grid = lambda META: (triton.cdiv(total, META["BLOCK"] * 4),)
    on(dropout_kernel, x)[grid](x, y, total, p, 1.0 / (1.0 - p), seed)
    return y


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
        y = dropout_op(x, p, seed)
        ctx.args = (p, seed)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        p, seed = ctx.args
        return dropout_op(dy.contiguous(), p, seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if training:
        return Dropout.apply(x, p, seed)
    return x
