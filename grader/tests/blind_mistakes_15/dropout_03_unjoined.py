# labs/lab4_production_slice/dropout.py | corner | Dropout.backward makes dy contiguous only where one of its strides is 0: a transposed dy, or every second column of a wider matrix, goes to the kernel as it is, and dx is wrong. It should always call dy.contiguous().
"""Dropout whose backward pass draws the numbers of the forward pass again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [
    triton.Config({"BLOCK": 512}, num_warps=4),
    triton.Config({"BLOCK": 1024}, num_warps=4),
]


@triton.jit
def choose(x_ptr, y_ptr, offs, n, number, p, scale):
    """Keep or drop the elements offs, a random number for each."""
    inside = offs < n
    x = tl.load(x_ptr + offs, mask=inside, other=0.0).to(tl.float32)
    y = tl.where(number >= p, x * scale, 0.0)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """Counter c decides the elements 4 c, 4 c + 1, 4 c + 2 and 4 c + 3."""
    counters = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    n0, n1, n2, n3 = tl.rand4x(seed, counters)
    offs = counters.to(tl.int64) * 4
    choose(x_ptr, y_ptr, offs, n, n0, p, scale)
    choose(x_ptr, y_ptr, offs + 1, n, n1, p, scale)
    choose(x_ptr, y_ptr, offs + 2, n, n2, p, scale)
    choose(x_ptr, y_ptr, offs + 3, n, n3, p, scale)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    if p < 1:
        scale = 1.0 / (1.0 - p)
    else:
        scale = 0.0
    grid = lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)
    on(dropout_kernel, x)[grid](x, out, n, p, scale, seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The same function of dy."""
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """dropout_forward as an operator."""
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x, p, seed):
        y = dropout_op(x, p, seed)
        ctx.p = p
        ctx.seed = seed
        return y

    @staticmethod
    def backward(ctx, dy):
        # the gradient of a sum is one number, expanded
        if 0 in dy.stride():
            dy = dy.contiguous()
        return dropout_op(dy, ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable; x itself in evaluation."""
    if training:
        return Dropout.apply(x, p, seed)
    return x
