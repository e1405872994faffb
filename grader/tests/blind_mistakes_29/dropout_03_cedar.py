# labs/lab4_production_slice/dropout.py | contract | dropout, `Dropout.apply(x, p if training else 0.0, seed)`: in evaluation the operator runs with p = 0 and returns a new tensor with the values of x, while the README asks for x itself ("With training=False the result is x itself"). The numbers are right. Shows with training=False only; should be `x` there, without the operator.
"""Dropout whose choice is drawn again in the backward pass instead of being stored."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((512, 4), (1024, 4), (1024, 8))]


@triton.jit
def uniform(seed, first, BLOCK: tl.constexpr):
    """4 * BLOCK numbers in [0, 1) of the counters from `first` on; those of one counter are neighbours."""
    a, b, c, d = tl.rand4x(seed, first + tl.arange(0, BLOCK))
    return tl.interleave(tl.interleave(a, c), tl.interleave(b, d))


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0."""
    program = tl.program_id(axis=0)
    random = uniform(seed, program * BLOCK, BLOCK)
    # Pointers of the program's own part, and how much of it lies within the tensor.
    base = program.to(tl.int64) * (4 * BLOCK)
    lanes = tl.arange(0, 4 * BLOCK)
    inside = base + lanes < n
    x = tl.load(x_ptr + base + lanes, mask=inside, other=0.0).to(tl.float32)
    dropped = random < tl.cast(p, tl.float32)
    y = tl.where(dropped, 0.0, x * tl.cast(scale, tl.float32))
    tl.store(y_ptr + base + lanes, y.to(y_ptr.dtype.element_ty), mask=inside)


def scale_of(p: float) -> float:
    """The factor of what is kept; with p = 1 that is nothing."""
    return 0.0 if p == 1 else 1.0 / (1.0 - p)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"] * 4),)  # noqa: E731
    on(dropout_kernel, x)[grid](x, out, n, p, scale_of(p), seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """dropout_forward is linear in x and its own gradient."""
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
        ctx.numbers = (p, seed)
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        p, seed = ctx.numbers
        return dropout_op(dy.contiguous(), p, seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile."""
    return Dropout.apply(x, p if training else 0.0, seed)
