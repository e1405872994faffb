# labs/lab4_production_slice/dropout.py | contract | In `dropout_kernel`, the four numbers of a counter go to `elements`, `elements + BLOCK`, `elements + 2 * BLOCK`, `elements + 3 * BLOCK`, so the choice for an element depends on BLOCK, which the autotuner picks (512 or 1024). "A seed gives the same choice in every call, on every machine, for every dtype and config" and "counter c decides elements 4 c to 4 c + 3" are broken; it should be four neighbours for each counter (joined and reshaped). All else (share, factor, gradient) is right; shows by comparing the two configs.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.jit
def settle(x_ptr, y_ptr, elements, n, keep, scale):
    """Store x * scale at these elements where they are to be kept, else 0."""
    inside = elements < n
    x = tl.load(x_ptr + elements, mask=inside, other=0.0).to(tl.float32)
    y = tl.where(keep, x * scale, 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the random number of element i is at least p, else 0.

    x and y are n contiguous elements of one dtype. Program k has BLOCK counters of the generator, from
    k * BLOCK on, and 4 * BLOCK elements, in four blocks for the four numbers of a counter.
    """
    program = tl.program_id(axis=0)
    lanes = tl.arange(0, BLOCK)
    least = tl.cast(p, tl.float32)
    factor = tl.cast(scale, tl.float32)
    first, second, third, fourth = tl.rand4x(seed, program * BLOCK + lanes)
    elements = program.to(tl.int64) * (4 * BLOCK) + lanes
    settle(x_ptr, y_ptr, elements, n, first >= least, factor)
    settle(x_ptr, y_ptr, elements + BLOCK, n, second >= least, factor)
    settle(x_ptr, y_ptr, elements + 2 * BLOCK, n, third >= least, factor)
    settle(x_ptr, y_ptr, elements + 3 * BLOCK, n, fourth >= least, factor)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 0.0 if p == 1 else 1.0 / (1.0 - p)
    grid = lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)  # noqa: E731
    on(dropout_kernel, x)[grid](x, out, n, p, scale, seed)
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
