# labs/lab4_production_slice/dropout.py | wrong everywhere | dropout_kernel draws with tl.randn4x, which gives normal numbers, instead of tl.rand4x, uniform in [0, 1): the share that is kept is that of a normal number at or above p (0.46 for p = 0.1, 0.31 for p = 0.5, half of the elements are dropped for p = 0). Only p = 1 is right.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (256, 512, 1024)]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    x and y are n contiguous elements of one dtype. Program k has BLOCK counters of the generator, from
    k * BLOCK on, and four elements for each counter.
    """
    program = tl.program_id(axis=0)
    # BEGIN TODO 1
    counters = program * BLOCK + tl.arange(0, BLOCK)
    r0, r1, r2, r3 = tl.randn4x(seed, counters)
    random = tl.join(tl.join(r0, r1), tl.join(r2, r3)).reshape(4 * BLOCK)
    # END TODO 1
    # BEGIN TODO 2
    elements = program.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    inside = elements < n
    x = tl.load(x_ptr + elements, mask=inside, other=0.0).to(tl.float32)
    kept = random >= tl.cast(p, tl.float32)
    y = tl.where(kept, x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=inside)
    # END TODO 2


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    # BEGIN TODO 3
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0
    grid = lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)  # noqa: E731
    on(dropout_kernel, x)[grid](x, out, n, float(p), scale, seed)
    # END TODO 3
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
