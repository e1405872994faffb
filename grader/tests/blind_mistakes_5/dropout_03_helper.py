# labs/lab4_production_slice/dropout.py | corner | The counters of a program begin at `program * 4 * BLOCK`; they must begin at `program * BLOCK` (four elements for each counter). Right in program 0; behind it counter c does not decide elements 4c to 4c + 3, and the choice depends on BLOCK.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.jit
def numbers(seed, first, BLOCK: tl.constexpr):
    """4 * BLOCK random numbers in a row, those of the counters from `first` on."""
    r0, r1, r2, r3 = tl.rand4x(seed, first + tl.arange(0, BLOCK))
    return tl.join(tl.join(r0, r1), tl.join(r2, r3)).reshape(4 * BLOCK)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0."""
    program = tl.program_id(axis=0)
    random = numbers(seed, program * 4 * BLOCK, BLOCK)
    start = program.to(tl.int64) * (4 * BLOCK)
    lanes = tl.arange(0, 4 * BLOCK)
    x_ptr += start
    y_ptr += start
    inside = lanes < n - start
    x = tl.load(x_ptr + lanes, mask=inside, other=0.0).to(tl.float32)
    factor = tl.where(random >= p, scale, 0.0)
    y = tl.where(factor > 0, x * factor, 0.0)
    tl.store(y_ptr + lanes, y.to(y_ptr.dtype.element_ty), mask=inside)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    scale = 1 / (1 - p) if p < 1 else 0.0
    grid = lambda meta: (triton.cdiv(triton.cdiv(x.numel(), 4), meta["BLOCK"]),)  # noqa: E731
    on(dropout_kernel, x)[grid](x, out, x.numel(), p, scale, seed)
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
