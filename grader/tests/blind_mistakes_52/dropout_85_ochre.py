# labs/lab4_production_slice/dropout.py | contract | In `dropout_kernel` the four blocks of numbers go to four blocks of elements one behind the other (`elements + BLOCK`, `elements + 2 * BLOCK`, `elements + 3 * BLOCK`), so the choice depends on BLOCK, which the autotuner picks from 1024 and 2048. The README promises that a seed gives the same choice for every config and that counter c decides elements 4 c to 4 c + 3; the numbers should be joined to four neighbours of each counter. Share, factor, seeds and gradient are right for any one config; two configs drop other elements for more than 1024 elements.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (1024, 2048)]


@triton.jit
def keep_or_drop(x_ptr, y_ptr, elements, n, random, p, scale):
    """Store x * scale for the elements whose random number is at least p, and 0 for the others."""
    inside = elements < n
    x = tl.load(x_ptr + elements, mask=inside, other=0.0).to(tl.float32)
    y = tl.where(random >= p, x * scale, 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the random number of `seed` for element i is at least p, else 0.

    x and y are n contiguous elements of one dtype; the numbers are uniform in [0, 1). Program k has BLOCK
    counters of the generator, from k * BLOCK on, and four elements for each counter.
    """
    program = tl.program_id(axis=0)
    lanes = tl.arange(0, BLOCK)
    first, second, third, fourth = tl.rand4x(seed, program * BLOCK + lanes)
    # torch.compile passes numbers as fp64.
    p = tl.cast(p, tl.float32)
    scale = tl.cast(scale, tl.float32)
    # Each of the four blocks of numbers goes to a block of elements next to each other, so that all loads
    # and stores are as wide as they can be, without a shuffle between threads.
    elements = program.to(tl.int64) * (4 * BLOCK) + lanes
    keep_or_drop(x_ptr, y_ptr, elements, n, first, p, scale)
    keep_or_drop(x_ptr, y_ptr, elements + BLOCK, n, second, p, scale)
    keep_or_drop(x_ptr, y_ptr, elements + 2 * BLOCK, n, third, p, scale)
    keep_or_drop(x_ptr, y_ptr, elements + 3 * BLOCK, n, fourth, p, scale)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    on(dropout_kernel, x)[lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)](x, out, n, p, scale, seed)
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
        ctx.p, ctx.seed = p, seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
