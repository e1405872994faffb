# labs/lab4_production_slice/dropout.py | wrong everywhere | dropout_forward sets `factor = 1.0 - p`, so what is kept is multiplied by 1 - p instead of divided by it; wrong for every p between 0 and 1 (p = 0 and p = 1 are right), in y and in dx, in both graded functions; it should be 1 / (1 - p), and 0 where p is 1
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.jit
def four_for_each(seed, counters, BLOCK: tl.constexpr):
    """Return 4 * BLOCK numbers from 0 up to 1; counter i of the block has numbers 4 i to 4 i + 3."""
    a, b, c, d = tl.rand4x(seed, counters)
    return tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), (4 * BLOCK,))


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, factor, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * factor where the i-th random number of `seed` is at least p, else 0."""
    program = tl.program_id(axis=0)
    random = four_for_each(seed, program * BLOCK + tl.arange(0, BLOCK), BLOCK)
    elements = program.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    inside = elements < n
    x = tl.load(x_ptr + elements, mask=inside, other=0.0).to(tl.float32)
    # Both may be fp64 under torch.compile.
    keep = random >= tl.cast(p, tl.float32)
    y = tl.where(keep, x * tl.cast(factor, tl.float32), 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=inside)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """Dropout of x with the choice of `seed`, each element for itself; the result goes to `out`, if given."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    factor = 1.0 - p
    on(dropout_kernel, x)[lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)](x, out, n, p, factor, seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient of dropout, with the choice of the forward pass of this seed."""
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
    if not training:
        return x
    return Dropout.apply(x, p, seed)
