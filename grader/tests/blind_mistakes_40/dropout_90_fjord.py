# labs/lab4_production_slice/dropout.py | right | Exercises dropout_forward and dropout. Unusual: at most 16384 programs, each of which goes over pieces k, k + programs, ...; the four numbers of a counter are brought next to each other by three `tl.interleave` instead of join and reshape, so the choice does not depend on BLOCK; `numbers < p` drops.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

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
MOST_PROGRAMS = 16384  # a program takes one piece after the other where there are more pieces than programs


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    x and y are n contiguous elements of one dtype. A piece is BLOCK counters and their 4 * BLOCK elements: counter
    c has the elements 4 * c to 4 * c + 3, whatever BLOCK is. Program k has the pieces k, k + programs and so on.
    """
    p = tl.cast(p, tl.float32)
    scale = tl.cast(scale, tl.float32)
    lanes = tl.arange(0, BLOCK)
    places = tl.arange(0, 4 * BLOCK)
    pieces = (n - 1) // (4 * BLOCK) + 1  # n + 4 * BLOCK may be beyond int32
    for piece in range(tl.program_id(axis=0), pieces, tl.num_programs(axis=0)):
        # The four numbers of a counter lie one behind the other: evens (0, 2) between odds (1, 3).
        first, second, third, fourth = tl.rand4x(seed, tl.cast(piece, tl.int32) * BLOCK + lanes)
        numbers = tl.interleave(tl.interleave(first, third), tl.interleave(second, fourth))
        elements = tl.cast(piece, tl.int64) * (4 * BLOCK) + places
        x = tl.load(x_ptr + elements, mask=elements < n, other=0.0).to(tl.float32)
        y = tl.where(numbers < p, 0.0, x * scale)
        tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=elements < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 0.0 if p == 1 else 1.0 / (1.0 - p)
    launch = on(dropout_kernel, x)[lambda meta: (min(triton.cdiv(n, 4 * meta["BLOCK"]), MOST_PROGRAMS),)]
    launch(x, out, n, p, scale, seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient of dropout: dy / (1 - p) where the forward pass of this seed kept x, else 0."""
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """dropout_forward as an operator that torch.compile can look into."""
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    """The operator with its gradient: no tensor is saved, as p and seed decide all."""

    @staticmethod
    def forward(ctx, x, p, seed):
        """Return y for x."""
        ctx.p = p
        ctx.seed = seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        dx = dropout_op(dy.contiguous(), ctx.p, ctx.seed)
        return dx, None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
