# labs/lab4_production_slice/dropout.py | honest | no mistake: each program takes two consecutive blocks in a static loop, the four numbers of a counter are given to its elements in another order, and there is no autotuner; it must get all points
"""Dropout, two blocks for each program and no autotuner."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

COUNTERS = 512  # of a block
BLOCKS = 2  # of a program


@triton.jit
def numbers_of(seed, counters, SIZE: tl.constexpr):
    """Four numbers for each counter, side by side: the third, the second, the fourth, the first."""
    first, second, third, fourth = tl.rand4x(seed, counters)
    left = tl.join(third, fourth)
    right = tl.join(second, first)
    return tl.reshape(tl.join(left, right), (SIZE,))


@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, factor, seed, COUNTERS: tl.constexpr, BLOCKS: tl.constexpr):
    SIZE: tl.constexpr = 4 * COUNTERS
    threshold = tl.cast(p, tl.float32)
    factor = tl.cast(factor, tl.float32)
    for b in tl.static_range(BLOCKS):
        block = tl.program_id(0) * BLOCKS + b
        random = numbers_of(seed, block * COUNTERS + tl.arange(0, COUNTERS), SIZE)
        at = block.to(tl.int64) * SIZE + tl.arange(0, SIZE)
        x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
        y = tl.where(random < threshold, 0.0, x * factor)
        tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=at < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    programs = triton.cdiv(n, 4 * COUNTERS * BLOCKS)
    launch = on(dropout_kernel, x)[(programs,)]
    factor = 1.0 / (1.0 - p) if p != 1 else 0.0
    launch(x, out, n, p, factor, seed, COUNTERS=COUNTERS, BLOCKS=BLOCKS, num_warps=4)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p, seed):
        ctx.choice = (p, seed)
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        p, seed = ctx.choice
        return dropout_op(dy.contiguous(), p, seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    if training:
        return Dropout.apply(x, p, seed)
    return x
