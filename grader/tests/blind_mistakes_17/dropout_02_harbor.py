# labs/lab4_production_slice/dropout.py | wrong everywhere | dropout_kernel: one number per counter (tl.rand) is broadcast by keep[:, None] to the four elements of that counter, so four neighbours always share one choice for every 0 < p < 1. Each element needs its own number: tl.rand4x, joined to (BLOCK, 4).
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((256, 4), (512, 4), (1024, 8))]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """A tile of (BLOCK, 4) elements: line c of it belongs to counter program * BLOCK + c."""
    program = tl.program_id(axis=0)
    lines = tl.arange(0, BLOCK)
    keep = tl.rand(seed, program * BLOCK + lines) >= p

    first = program.to(tl.int64) * (4 * BLOCK)
    tile = first + lines[:, None] * 4 + tl.arange(0, 4)[None, :]
    mask = tile < n
    x = tl.load(x_ptr + tile, mask=mask, other=0.0).to(tl.float32)
    y = tl.where(keep[:, None], x * scale, 0.0)
    tl.store(y_ptr + tile, y.to(y_ptr.dtype.element_ty), mask=mask)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 0.0 if p == 1 else 1 / (1 - p)
    launch = on(dropout_kernel, x)[lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)]
    launch(x, out, n, p, scale, seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient of dropout: the same function of dy."""
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
    if not training:
        return x
    return Dropout.apply(x, p, seed)
