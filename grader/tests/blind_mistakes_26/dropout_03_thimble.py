# labs/lab4_production_slice/dropout.py | two mistakes | (1) dropout_kernel lays the four blocks of rand4x one behind the other (elements first + 0, 1, 2, 3 times BLOCK), so which number an element gets depends on BLOCK: with BLOCK 512 and 1024 the same seed makes another choice from element 512 on, in dropout_forward and dropout; counter c should decide elements 4 c to 4 c + 3. (2) Dropout.forward saves 1 - p as ctx.keep, and backward hands it on as the p of dropout_op, so dx has another choice and another factor than y for every p but 0.5 (for p = 1 dx is dy); it should hand on p
"""Dropout with Philox: nothing but p and the seed is kept for the backward pass."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": 512}, num_warps=4), triton.Config({"BLOCK": 1024}, num_warps=4)]


@triton.jit
def thin_out(x_ptr, y_ptr, first, n, numbers, p, scale, BLOCK: tl.constexpr):
    """BLOCK elements from `first` on: scaled where the number is at least p, else 0."""
    spots = first + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + spots, mask=spots < n, other=0.0).to(tl.float32)
    y = tl.where(numbers >= p, x * scale, 0.0)
    tl.store(y_ptr + spots, y.to(y_ptr.dtype.element_ty), mask=spots < n)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y = x * scale or 0. A program has BLOCK counters of the generator, and four elements for each."""
    program = tl.program_id(axis=0)
    # torch.compile hands over numbers of 64 bits.
    chance = tl.cast(p, tl.float32)
    factor = tl.cast(scale, tl.float32)
    u0, u1, u2, u3 = tl.rand4x(seed, program * BLOCK + tl.arange(0, BLOCK))
    first = program.to(tl.int64) * (4 * BLOCK)
    thin_out(x_ptr, y_ptr, first, n, u0, chance, factor, BLOCK)
    thin_out(x_ptr, y_ptr, first + BLOCK, n, u1, chance, factor, BLOCK)
    thin_out(x_ptr, y_ptr, first + 2 * BLOCK, n, u2, chance, factor, BLOCK)
    thin_out(x_ptr, y_ptr, first + 3 * BLOCK, n, u3, chance, factor, BLOCK)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0

    def programs(meta):
        return (triton.cdiv(n, 4 * meta["BLOCK"]),)

    on(dropout_kernel, x)[programs](x, out, n, p, scale, seed)
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
        ctx.keep = 1.0 - p
        ctx.seed = seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        dx = dropout_op(dy.contiguous(), ctx.keep, ctx.seed)
        return dx, None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
