# labs/lab4_production_slice/dropout.py | right | right
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

PROGRAMS = 2048  # at most: each walks through the tensor in steps of all programs
CONFIGS = [
    triton.Config({"BLOCK": 128}, num_warps=2),
    triton.Config({"BLOCK": 512}, num_warps=4),
    triton.Config({"BLOCK": 1024}, num_warps=8),
]


@triton.jit
def four_numbers(seed, counters):
    """A tile with four columns: row c has the four numbers of counter c. `counters` is a column."""
    r0, r1, r2, r3 = tl.rand4x(seed, counters)
    lane = tl.arange(0, 4)[None, :]
    low = tl.where(lane == 0, r0, r1)
    high = tl.where(lane == 2, r2, r3)
    return tl.where(lane < 2, low, high)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    x and y are n contiguous elements of one dtype; the numbers are uniform in [0, 1). Both are seen as
    matrices with four columns, and row c belongs to counter c. A program takes BLOCK rows, then those that
    lie num_programs blocks further on, until none is left.
    """
    threshold = tl.cast(p, tl.float32)
    factor = tl.cast(scale, tl.float32)
    n_blocks = tl.cdiv(n, 4 * BLOCK)
    for block in range(tl.program_id(axis=0), n_blocks, tl.num_programs(axis=0)):
        counters = block * BLOCK + tl.arange(0, BLOCK)[:, None]
        elements = counters.to(tl.int64) * 4 + tl.arange(0, 4)[None, :]
        x = tl.load(x_ptr + elements, mask=elements < n, other=0.0).to(tl.float32)
        # Not "x * keep * factor": of an infinite x that would be NaN where it is dropped.
        y = tl.where(four_numbers(seed, counters) < threshold, 0.0, x * factor)
        tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=elements < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()

    def grid(meta):
        return (min(triton.cdiv(n, 4 * meta["BLOCK"]), PROGRAMS),)

    keep = 1.0 - p
    on(dropout_kernel, x)[grid](x, out, n, float(p), 1.0 / keep if keep > 0 else 0.0, seed)
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
        ctx.drawn = (p, seed)
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        p, seed = ctx.drawn
        return dropout_op(dy.contiguous(), p, seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if training:
        return Dropout.apply(x, p, seed)
    return x
