# labs/lab4_production_slice/dropout.py | two mistakes | First, the scale in dropout_forward is 1 / (1 - p) where p <= 1.0: at p = 1 that raises ZeroDivisionError, the condition should be p < 1. Second, Dropout keeps 1 - p on ctx and backward passes it to dropout_op as p: dx has another choice and factor unless p is 0.5 (and p = 0 divides by 0); it should pass p.
"""Dropout without a stored mask.

The random numbers depend on the seed and on the number of the element only. So the backward pass needs
the seed and the probability, and no mask.
"""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

NUMBERS_OF_A_COUNTER = 4

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(
    x_ptr,  # n contiguous elements
    y_ptr,  # n contiguous elements of the dtype of x
    n,
    p,  # probability to drop
    scale,  # factor of what is kept
    seed,
    BLOCK: tl.constexpr,  # counters of a program
):
    program = tl.program_id(axis=0)

    # 1. four random numbers for each counter
    counters = program * BLOCK + tl.arange(0, BLOCK)
    u0, u1, u2, u3 = tl.rand4x(seed, counters)
    even = tl.join(u0, u1)
    odd = tl.join(u2, u3)
    random = tl.reshape(tl.join(even, odd), (4 * BLOCK,))

    # 2. the elements that belong to them
    offsets = program.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)

    # 3. keep or drop, in fp32
    keep = random >= p
    scaled = x.to(tl.float32) * scale
    y = tl.where(keep, scaled, 0.0)
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=mask)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p <= 1.0 else 0.0

    def grid(meta):
        per_program = NUMBERS_OF_A_COUNTER * meta["BLOCK"]
        return (triton.cdiv(n, per_program),)

    kernel = on(dropout_kernel, x)
    kernel[grid](x, out, n, p, scale, seed)
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
        result = dropout_op(x, p, seed)
        ctx.kept = 1.0 - p
        ctx.seed = seed
        return result

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        gradient = dropout_op(dy.contiguous(), ctx.kept, ctx.seed)
        return gradient, None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if not training:
        return x
    return Dropout.apply(x, p, seed)
