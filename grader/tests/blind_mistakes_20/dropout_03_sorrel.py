# labs/lab4_production_slice/dropout.py | contract | dropout_forward takes SLOTS = 8 choices from a counter for 16-bit dtypes and 4 for fp32, so the same seed gives another choice for fp16/bf16 than for fp32; the README wants the same choice for every dtype. The number of elements for a counter should not depend on the dtype.
"""Dropout from random integers, with no more of them than needed."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (256, 512)]


@triton.jit
def draw(seed, counters, SLOTS: tl.constexpr, BLOCK: tl.constexpr):
    """Return SLOTS numbers of [0, 1) for each counter, those of a counter next to each other."""
    a, b, c, d = tl.randint4x(seed, counters)
    bits = tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), (4 * BLOCK,)).to(tl.uint32, bitcast=True)
    if SLOTS == 8:
        # 16 bits are enough for a choice: both halves are used
        halves = tl.reshape(tl.join(bits & 0xFFFF, bits >> 16), (8 * BLOCK,))
        numbers = halves.to(tl.float32) * 1.52587890625e-05
    else:
        numbers = (bits >> 8).to(tl.float32) * 5.9604644775390625e-08
    return numbers


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, SLOTS: tl.constexpr, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0."""
    program = tl.program_id(axis=0)
    numbers = draw(seed, program * BLOCK + tl.arange(0, BLOCK), SLOTS, BLOCK)
    i = program.to(tl.int64) * (SLOTS * BLOCK) + tl.arange(0, SLOTS * BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    y = tl.where(numbers >= tl.cast(p, tl.float32), x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + i, y.to(y_ptr.dtype.element_ty), mask=i < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    # A thread should move 16 bytes at a time: eight elements of 16 bits, or four of 32.
    slots = 8 if x.element_size() == 2 else 4
    scale = 0.0 if p == 1 else 1.0 / (1.0 - p)
    grid = lambda meta: (triton.cdiv(n, slots * meta["BLOCK"]),)
    on(dropout_kernel, x)[grid](x, out, n, p, scale, seed, SLOTS=slots)
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
        y = dropout_op(x, p, seed)
        ctx.p = p
        ctx.seed = seed
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
