# labs/lab4_production_slice/dropout.py | two mistakes | In the kernel `counter = tl.arange(0, BLOCK)` lacks `program * BLOCK +`, so every program draws the same numbers and the choice repeats from block to block. In Dropout.backward `dropout_op(dy, ...)` lacks `.contiguous()`, so an expanded, transposed or sliced dy is read at wrong addresses.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    x and y are n contiguous elements of one dtype; the numbers are uniform in [0, 1). Program k has BLOCK
    counters of the generator, from k * BLOCK on, and four elements for each counter.
    """
    program = tl.program_id(axis=0)

    # ---- random numbers -------------------------------------------------------------------
    # Philox maps (seed, counter) to four numbers, so BLOCK counters are enough for 4 * BLOCK
    # elements. The four numbers of a counter end up next to each other.
    counter = tl.arange(0, BLOCK)
    first, second, third, fourth = tl.rand4x(seed, counter)
    left = tl.join(first, second)  # (BLOCK, 2)
    right = tl.join(third, fourth)  # (BLOCK, 2)
    random = tl.join(left, right).reshape(4 * BLOCK)  # (BLOCK, 2, 2) and then flat

    # ---- the elements ---------------------------------------------------------------------
    PER_PROGRAM: tl.constexpr = 4 * BLOCK
    element = program.to(tl.int64) * PER_PROGRAM + tl.arange(0, PER_PROGRAM)
    in_bounds = element < n
    value = tl.load(x_ptr + element, mask=in_bounds, other=0.0)
    kept = random >= p
    result = tl.where(kept, value.to(tl.float32) * scale, 0.0)
    tl.store(y_ptr + element, result.to(y_ptr.dtype.element_ty), mask=in_bounds)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    # Nothing survives p = 1, so the factor does not matter; 1 / 0 would raise.
    if p == 1:
        scale = 0.0
    else:
        scale = 1.0 / (1.0 - p)

    def grid(meta):
        return (triton.cdiv(n, 4 * meta["BLOCK"]),)

    on(dropout_kernel, x)[grid](x, out, n, p, scale, seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient of dropout: dy / (1 - p) where the forward pass of this seed kept x, else 0."""
    # The same function as forward: what was dropped gets no gradient, the rest the same factor.
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
        # No tensor has to be saved, p and seed are plain numbers.
        ctx.p = p
        ctx.seed = seed
        y = dropout_op(x, p, seed)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        dx = dropout_op(dy, ctx.p, ctx.seed)
        return dx, None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if training:
        return Dropout.apply(x, p, seed)
    return x
