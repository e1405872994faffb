# labs/lab4_production_slice/dropout.py | contract | with training=False the function runs the operator with p = 0 (`p if training else 0.0`), which gives a copy of x (right numbers, right gradient) in a new tensor; the README: the result is x itself. Must be `return x`. Shows with training=False, by identity or address.
"""Dropout with one fixed block: 1024 counters, 4096 elements."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

BLOCK = 1024


@triton.jit
def four_numbers(seed, counters, BLOCK: tl.constexpr):
    """Four uniform numbers for each counter, next to each other."""
    a, b, c, d = tl.rand4x(seed, counters)
    even = tl.join(a, c)
    odd = tl.join(b, d)
    return tl.reshape(tl.join(even, odd), (4 * BLOCK,))


@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """Keep where the number is at least p."""
    program = tl.program_id(axis=0)
    numbers = four_numbers(seed, program * BLOCK + tl.arange(0, BLOCK), BLOCK)
    i = program.to(tl.int64) * 4 * BLOCK + tl.arange(0, 4 * BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    kept = numbers >= tl.cast(p, tl.float32)
    tl.store(y_ptr + i, tl.where(kept, x.to(tl.float32) * scale, 0.0).to(y_ptr.dtype.element_ty), mask=i < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """Zero an element with probability p, and divide the others by 1 - p."""
    y = out if out is not None else torch.empty_like(x)
    n = x.numel()
    keep_share = 1.0 - p
    scale = 1.0 / keep_share if keep_share > 0.0 else 0.0
    on(dropout_kernel, x)[(triton.cdiv(n, 4 * BLOCK),)](x, y, n, p, scale, seed, BLOCK=BLOCK, num_warps=8)
    return y


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The same choice and the same factor, for dy."""
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """The operator, for both directions."""
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x, p, seed):
        """Return y for x."""
        ctx.numbers = (p, seed)
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        p, seed = ctx.numbers
        return dropout_op(dy.contiguous(), p, seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Dropout; in evaluation nothing is dropped."""
    return Dropout.apply(x, p if training else 0.0, seed)
