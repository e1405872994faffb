# labs/lab4_production_slice/dropout.py | error | Dropout.backward returns two values, `dx, None`, but forward has three arguments after ctx (x, p, seed), so autograd raises "returned an incorrect number of gradients" in every backward pass. It should return `dx, None, None`.
"""Dropout without a stored mask; each program takes several turns."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [
    triton.Config({"BLOCK": 256, "TURNS": 4}, num_warps=4),
    triton.Config({"BLOCK": 512, "TURNS": 2}, num_warps=4),
    triton.Config({"BLOCK": 512, "TURNS": 4}, num_warps=8),
]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr, TURNS: tl.constexpr):
    """A program has TURNS times BLOCK counters, and four elements for each of them."""
    start = tl.program_id(axis=0) * (BLOCK * TURNS)
    for turn in tl.static_range(TURNS):
        counter = start + turn * BLOCK
        a, b, c, d = tl.rand4x(seed, counter + tl.arange(0, BLOCK))
        random = tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (4 * BLOCK,))
        index = counter.to(tl.int64) * 4 + tl.arange(0, 4 * BLOCK)
        x = tl.load(x_ptr + index, mask=index < n, other=0.0).to(tl.float32)
        y = tl.where(random < p, 0.0, x * scale)
        tl.store(y_ptr + index, y, mask=index < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    assert 0 <= p <= 1, f"p is {p}"
    n = x.numel()
    scale = 0.0
    if p != 1:
        scale = 1.0 / (1.0 - p)
    launch = on(dropout_kernel, x)[lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"] * meta["TURNS"]),)]
    launch(x, out, n, p, scale, seed)
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
        """Return dx for dy."""
        dx = dropout_op(dy.contiguous(), ctx.p, ctx.seed)
        return dx, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if not training:
        return x
    return Dropout.apply(x, p, seed)
