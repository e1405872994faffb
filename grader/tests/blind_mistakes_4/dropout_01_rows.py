# labs/lab4_production_slice/dropout.py | honest | tiles of BLOCK x 4: the line of a counter holds its four neighbouring elements; helper for the numbers, three configs
"""Dropout: a counter of the generator for a line of four neighbours, tiles of BLOCK x 4."""

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
def four_numbers(seed, counters, BLOCK: tl.constexpr):
    """(BLOCK, 4) uniform numbers, line c belongs to counter c."""
    a, b, c, d = tl.rand4x(seed, counters)
    return tl.join(tl.join(a, b), tl.join(c, d)).reshape(BLOCK, 4)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    first = tl.program_id(axis=0).to(tl.int64) * BLOCK
    lines = first + tl.arange(0, BLOCK)
    numbers = four_numbers(seed, lines, BLOCK)
    elements = 4 * lines[:, None] + tl.arange(0, 4)[None, :]
    exists = elements < n
    x = tl.load(x_ptr + elements, mask=exists, other=0.0).to(tl.float32)
    kept = numbers >= p
    y = tl.where(kept, x * scale, 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=exists)


def keep_scale(p):
    if p >= 1:
        return 0.0
    return 1 / (1 - p)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """Drop each element of x with probability p."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()

    def grid(meta):
        return (triton.cdiv(triton.cdiv(n, 4), meta["BLOCK"]),)

    on(dropout_kernel, x)[grid](x, out, n, p, keep_scale(p), seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p, seed):
        y = dropout_op(x, p, seed)
        ctx.how = (p, seed)
        return y

    @staticmethod
    def backward(ctx, dy):
        p, seed = ctx.how
        dx = dropout_op(dy.contiguous(), p, seed)
        return dx, None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    if not training:
        return x
    return Dropout.apply(x, p, seed)
