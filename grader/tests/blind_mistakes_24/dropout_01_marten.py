# labs/lab4_production_slice/dropout.py | wrong everywhere | four_numbers: tl.join(pairs, pairs) uses the first two numbers of each counter twice, so two neighbouring elements are always kept or dropped together (wrong for every 0 < p < 1). It should be tl.join(tl.join(a, b), tl.join(c, d)).
"""Dropout from seed and element number alone."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [
    triton.Config({"BLOCK": 256}, num_warps=4),
    triton.Config({"BLOCK": 512}, num_warps=4),
    triton.Config({"BLOCK": 1024}, num_warps=8),
]


@triton.jit
def four_numbers(seed, counters, BLOCK: tl.constexpr):
    """Random numbers of the counters as one block of 4 * BLOCK, those of a counter next to each other."""
    a, b, c, d = tl.rand4x(seed, counters)
    pairs = tl.join(a, b)  # (BLOCK, 2)
    fours = tl.join(pairs, pairs)  # (BLOCK, 2, 2)
    return tl.reshape(fours, (4 * BLOCK,))


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """Program k: counters from k * BLOCK on, elements from 4 * k * BLOCK on."""
    program = tl.program_id(axis=0)
    random = four_numbers(seed, program * BLOCK + tl.arange(0, BLOCK), BLOCK)

    elements = program.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    inside = elements < n
    x = tl.load(x_ptr + elements, mask=inside, other=0.0).to(tl.float32)
    kept = random >= tl.cast(p, tl.float32)
    y = tl.where(kept, x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=inside)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """Drop with probability p, and divide the rest by 1 - p."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    if p < 1:
        scale = 1.0 / (1.0 - p)
    else:
        scale = 0.0

    def grid(meta):
        return (triton.cdiv(n, 4 * meta["BLOCK"]),)

    on(dropout_kernel, x)[grid](x, out, n, p, scale, seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """dy through the same choice and the same factor."""
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
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
