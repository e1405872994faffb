# labs/lab4_production_slice/dropout.py | error | dropout_kernel, `random = tl.join(tl.join(a, b), tl.join(c, d))`: its shape is (BLOCK, 2, 2), while x is a (BLOCK, 4) tile, so tl.where cannot broadcast them: ValueError in the interpreter, compile error on a GPU, in every launch. It should be reshaped to (BLOCK, 4).
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
    # BEGIN TODO 1: `random`, a number for each element: tl.rand4x, joined by tl.join (about 3 lines)
    # A counter of Philox gives four numbers; tl.rand would use one of them.
    counters = program * BLOCK + tl.arange(0, BLOCK)
    a, b, c, d = tl.rand4x(seed, counters)
    random = tl.join(tl.join(a, b), tl.join(c, d))
    # END TODO 1
    # BEGIN TODO 2: keep or drop, scale and store (about 5 lines)
    # A tile of BLOCK rows, one for each counter, and four columns.
    rows = program.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    elements = rows[:, None] * 4 + tl.arange(0, 4)[None, :]
    mask = elements < n
    x = tl.load(x_ptr + elements, mask=mask, other=0.0).to(tl.float32)
    y = tl.where(random >= tl.cast(p, tl.float32), x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=mask)
    # END TODO 2


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    # BEGIN TODO 3: launch enough programs; with p = 1 nothing is kept (about 4 lines)
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0

    def grid(meta):
        return (triton.cdiv(n, meta["BLOCK"] * 4),)

    on(dropout_kernel, x)[grid](x, out, n, p, scale, seed)
    # END TODO 3
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient of dropout: dy / (1 - p) where the forward pass of this seed kept x, else 0."""
    # BEGIN TODO 4: which function of dy is this? (about 1 line)
    return dropout_forward(dy, p=p, seed=seed, out=out)
    # END TODO 4


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """dropout_forward as an operator that torch.compile can look into."""
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x, p, seed):
        """Return y for x."""
        # BEGIN TODO 5: the result, and what the gradient needs instead of a mask (about 3 lines)
        ctx.p = p
        ctx.seed = seed
        return dropout_op(x, p, seed)
        # END TODO 5

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        # BEGIN TODO 6: the gradient by dropout_op; the elements of dy may lie apart (about 1 line)
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None
        # END TODO 6


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    # BEGIN TODO 7: dropout while training, and nothing of it in evaluation (about 1 line)
    return Dropout.apply(x, p, seed) if training else x
    # END TODO 7
