# labs/lab4_production_slice/dropout.py | wrong everywhere | In uniform() the number of a counter is chosen by `which = (elements // 4) % 4` instead of `elements % 4`. The four elements of a counter get the same number, so they are always kept or dropped together.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": 1024}, num_warps=4), triton.Config({"BLOCK": 2048}, num_warps=8)]


@triton.jit
def uniform(seed, elements):
    """One number in [0, 1) for each element: counter c of Philox serves elements 4 c to 4 c + 3."""
    counter = (elements // 4).to(tl.int32)
    which = (elements // 4) % 4
    r0, r1, r2, r3 = tl.rand4x(seed, counter)
    low = tl.where(which == 0, r0, r1)
    high = tl.where(which == 2, r2, r3)
    return tl.where(which < 2, low, high)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """Program k has BLOCK elements, from k * BLOCK on."""
    elements = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = elements < n
    number = uniform(seed, elements)
    x = tl.load(x_ptr + elements, mask=inside, other=0.0).to(tl.float32)
    keep = number >= tl.cast(p, tl.float32)
    y = tl.where(keep, x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=inside)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)  # noqa: E731
    if n > 0:
        on(dropout_kernel, x)[grid](x, out, n, p, scale, seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient of dropout: the same choice and the same factor, for dy."""
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """dropout_forward as an operator that torch.compile can look into."""
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x, p, seed):
        ctx.p = p
        ctx.seed = seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
