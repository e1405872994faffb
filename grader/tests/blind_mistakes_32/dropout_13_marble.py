# labs/lab4_production_slice/dropout.py | right | right
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
    """A tile of BLOCK x 4 elements: a row for each counter, a column for each of its numbers."""
    counters = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    first, second, third, fourth = tl.rand4x(seed, counters)
    pairs = tl.join(tl.join(first, third), tl.join(second, fourth))
    dropped = tl.reshape(pairs, (BLOCK, 4)) < tl.cast(p, tl.float32)

    elements = counters.to(tl.int64)[:, None] * 4 + tl.arange(0, 4)[None, :]
    x = tl.load(x_ptr + elements, mask=elements < n, other=0.0).to(tl.float32)
    y = tl.where(dropped, 0.0, x * scale)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=elements < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n, left = x.numel(), 1.0 - p
    scale = 1.0 / left if left > 0.0 else 0.0
    quarters = triton.cdiv(n, 4)
    on(dropout_kernel, x)[lambda meta: (triton.cdiv(quarters, meta["BLOCK"]),)](x, out, n, p, scale, seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient of dropout: dropout of dy, as it is linear for a given seed."""
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
        ctx.choice = p, seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        p, seed = ctx.choice
        return dropout_op(dy.contiguous(), p, seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
