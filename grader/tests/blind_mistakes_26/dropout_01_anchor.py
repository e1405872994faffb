# labs/lab4_production_slice/dropout.py | wrong everywhere | dropout_forward hands over scale = 1 / (1 - p), and dropout_kernel divides by it (`x / factor`), so kept elements of y, and of dx, are x * (1 - p) instead of x / (1 - p); dropout_forward and dropout, every case with 0 < p < 1 (p = 0 and p = 1 are right). It should be x * factor
"""Dropout that draws its random numbers again in the backward pass, instead of keeping a mask."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.jit
def uniform(seed, counters, BLOCK: tl.constexpr):
    """Four numbers in [0, 1) for each of BLOCK counters, those of a counter next to each other."""
    first, second, third, fourth = tl.rand4x(seed, counters)
    pairs = tl.join(tl.join(first, second), tl.join(third, fourth))
    return tl.reshape(pairs, (4 * BLOCK,))


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """Keep and scale x[i] where the i-th random number of `seed` is at least p, else store 0."""
    program = tl.program_id(axis=0)
    random = uniform(seed, program * BLOCK + tl.arange(0, BLOCK), BLOCK)

    elements = program.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    exists = elements < n
    x = tl.load(x_ptr + elements, mask=exists, other=0.0).to(tl.float32)

    # Under torch.compile p and scale come as fp64.
    chance = tl.cast(p, tl.float32)
    factor = tl.cast(scale, tl.float32)
    y = tl.where(random >= chance, x / factor, 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=exists)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    grid = lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)  # noqa: E731
    on(dropout_kernel, x)[grid](x, out, n, p, scale, seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient of dropout: the same choice and the same factor, of dy."""
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
