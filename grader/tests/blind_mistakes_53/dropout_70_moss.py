# labs/lab4_production_slice/dropout.py | contract | In `dropout_kernel` the four numbers of a counter go to four slices of `BLOCK` elements one behind the other (`drop_slice(x_ptr, y_ptr, at + BLOCK, n, second, ...)`, `at + 2 * BLOCK`, `at + 3 * BLOCK`), so the choice for an element depends on `BLOCK`, which differs between the configs (512, 1024, 2048). The README promises the same choice for every dtype and config, and that counter c decides elements 4c to 4c+3; the four blocks should be joined (`tl.join`, reshape) so that they interleave. Share, scale and gradients are right; it shows when another config is forced or is chosen for another dtype.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((512, 4), (1024, 4), (1024, 8), (2048, 8))
]


@triton.jit
def drop_slice(x_ptr, y_ptr, at, n, random, p, scale):
    """Write x * scale where the number of an element is at least p, and 0 elsewhere."""
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    y = tl.where(random >= p, x * scale, 0.0)
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the random number of element i is at least p, else 0.

    x and y are n contiguous elements of one dtype; the numbers are uniform in [0, 1). A program has BLOCK
    counters of the generator and four contiguous slices of BLOCK elements, one for each number of a counter,
    so that all loads and stores are wide.
    """
    program = tl.program_id(axis=0)
    lanes = tl.arange(0, BLOCK)
    first, second, third, fourth = tl.rand4x(seed, program * BLOCK + lanes)
    threshold = tl.cast(p, tl.float32)
    factor = tl.cast(scale, tl.float32)
    at = program.to(tl.int64) * (4 * BLOCK) + lanes
    drop_slice(x_ptr, y_ptr, at, n, first, threshold, factor)
    drop_slice(x_ptr, y_ptr, at + BLOCK, n, second, threshold, factor)
    drop_slice(x_ptr, y_ptr, at + 2 * BLOCK, n, third, threshold, factor)
    drop_slice(x_ptr, y_ptr, at + 3 * BLOCK, n, fourth, threshold, factor)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The result goes to `out`, like x, where
    one is given.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    launch = on(dropout_kernel, x)[lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)]
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
