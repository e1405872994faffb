# labs/lab4_production_slice/dropout.py | right | right
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (256, 512, 1024)]


@triton.jit
def four_each(seed, counters):
    """A (counters, 4) tile of uniform numbers: row i has the four of counters[i], in their order."""
    first, second, third, fourth = tl.rand4x(seed, counters)
    place = tl.arange(0, 4)[None, :]
    front = tl.where(place == 0, first[:, None], second[:, None])
    rear = tl.where(place == 2, third[:, None], fourth[:, None])
    return tl.where(place < 2, front, rear)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    The elements are seen as a matrix with four columns, of which row c belongs to counter c of the generator.
    A program has BLOCK rows of it; the last row may be incomplete.
    """
    counters = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    elements = counters.to(tl.int64)[:, None] * 4 + tl.arange(0, 4)[None, :]
    present = elements < n
    kept = four_each(seed, counters) >= p
    x = tl.load(x_ptr + elements, mask=present, other=0.0).to(tl.float32)
    y = tl.where(kept, x * scale, 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=present)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 0.0
    if p < 1.0:
        scale = 1.0 / (1.0 - p)
    rows_of_four = triton.cdiv(n, 4)
    grid = lambda meta: (triton.cdiv(rows_of_four, meta["BLOCK"]),)  # noqa: E731
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
        ctx.choice = p, seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        p, seed = ctx.choice
        dx = dropout_op(dy.contiguous(), p, seed)
        return dx, None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if not training:
        return x
    return Dropout.apply(x, p, seed)
