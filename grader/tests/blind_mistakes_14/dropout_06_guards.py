# labs/lab4_production_slice/dropout.py | corner | In dropout_forward `if p == 0: return x` returns the input itself and leaves `out` unwritten for p = 0; this line should not be there, since the kernel copies every element exactly for p = 0.
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
    counters = program * BLOCK + tl.arange(0, BLOCK)
    u0, u1, u2, u3 = tl.rand4x(seed, counters)
    # order within four: u0 u2 u1 u3, which is as good as any
    evens = tl.join(u0, u1)
    odds = tl.join(u2, u3)
    random = tl.join(evens, odds).reshape((4 * BLOCK,))

    x_ptr += program.to(tl.int64) * 4 * BLOCK
    y_ptr += program.to(tl.int64) * 4 * BLOCK
    left = n - program.to(tl.int64) * 4 * BLOCK
    cols = tl.arange(0, 4 * BLOCK)
    x = tl.load(x_ptr + cols, mask=cols < left, other=0.0).to(tl.float32)
    dropped = random < p
    y = tl.where(dropped, 0.0, x * scale)
    tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < left)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    if p < 0 or p > 1:
        raise ValueError("p is a probability, from 0 to 1")
    # nothing is dropped, so no random numbers are needed
    if p == 0:
        return x
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p != 1 else 0.0
    grid = lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)
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
        ctx.p = p
        ctx.seed = seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        grad = dy.contiguous()
        return dropout_op(grad, ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if not training:
        return x
    return Dropout.apply(x, p, seed)
