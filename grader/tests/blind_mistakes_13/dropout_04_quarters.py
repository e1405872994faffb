# labs/lab4_production_slice/dropout.py | corner | For p == 1 the host function returns `torch.zeros_like(x)`, a new tensor, and never writes a given `out`; it should launch the kernel with scale 0 (all dropped) and return `out`.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.jit
def one_of_four(x_ptr, y_ptr, element, n, number, p, scale):
    """Keep or drop one element of each counter."""
    exists = element < n
    x = tl.load(x_ptr + element, mask=exists, other=0.0).to(tl.float32)
    y = tl.where(number >= p, x * scale, 0.0)
    tl.store(y_ptr + element, y.to(y_ptr.dtype.element_ty), mask=exists)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    x and y are n contiguous elements of one dtype; the numbers are uniform in [0, 1). Program k has BLOCK
    counters of the generator, from k * BLOCK on, and four elements for each counter.
    """
    program = tl.program_id(axis=0)
    p = tl.cast(p, tl.float32)
    scale = tl.cast(scale, tl.float32)
    counter = program * BLOCK + tl.arange(0, BLOCK)
    r0, r1, r2, r3 = tl.rand4x(seed, counter)
    # number k of counter c belongs to element 4 c + k
    first = counter.to(tl.int64) * 4
    one_of_four(x_ptr, y_ptr, first, n, r0, p, scale)
    one_of_four(x_ptr, y_ptr, first + 1, n, r1, p, scale)
    one_of_four(x_ptr, y_ptr, first + 2, n, r2, p, scale)
    one_of_four(x_ptr, y_ptr, first + 3, n, r3, p, scale)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    if p == 1:
        # nothing is kept, and 1 / (1 - p) does not exist
        return torch.zeros_like(x)
    n = x.numel()
    counters = triton.cdiv(n, 4)
    on(dropout_kernel, x)[lambda meta: (triton.cdiv(counters, meta["BLOCK"]),)](
        x, out, n, p, 1 / (1 - p), seed
    )
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
        ctx.drop = p
        ctx.seed = seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        return dropout_op(dy.contiguous(), ctx.drop, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
