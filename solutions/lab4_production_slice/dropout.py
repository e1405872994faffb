"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import rows
import torch
import triton
import triton.language as tl
from torch.library import triton_op

PER_COUNTER = 8  # elements that one counter of the generator decides: 128 random bits, 16 for each
STEPS = 65536  # p is rounded to a multiple of 1 / STEPS
CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (128, 256)]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, seed, threshold, scale, BLOCK: tl.constexpr, PER_COUNTER: tl.constexpr):
    """y[i] = x[i] * scale where the i-th number of the stream of `seed` is at least threshold, else 0.

    x and y are n contiguous elements of one dtype; the numbers are whole, from 0 to 65535. Program k owns
    BLOCK counters, and PER_COUNTER elements for each.
    """
    # BEGIN TODO 1: one random number of 16 bits for each element of this program (about 8 lines)
    pid = tl.program_id(axis=0)
    # Philox gives four numbers of 32 bits for a counter; drawn one by one, three of four would be lost.
    a, b, c, d = tl.randint4x(seed, pid * BLOCK + tl.arange(0, BLOCK))
    bits = tl.join(tl.join(a, b), tl.join(c, d)).to(tl.uint32, bitcast=True)
    halves = tl.reshape(tl.join(bits & 0xFFFF, bits >> 16), (BLOCK * PER_COUNTER,)).to(tl.int32)
    # END TODO 1
    # BEGIN TODO 2: keep or drop, scale and store (about 5 lines)
    offs = pid.to(tl.int64) * BLOCK * PER_COUNTER + tl.arange(0, BLOCK * PER_COUNTER)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    y = tl.where(halves >= threshold, x * scale, 0.0)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=offs < n)
    # END TODO 2


def dropout_forward(x, *, p: float, seed: int, out=None, traced=False) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself; x is contiguous,
    of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice. The result goes to
    `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    # BEGIN TODO 3: launch enough programs; with p = 1 nothing is kept (about 5 lines)
    n, scale = x.numel(), 1.0 / (1.0 - p) if p < 1.0 else 0.0
    if n > 0:
        grid = lambda meta: (triton.cdiv(n, meta["BLOCK"] * PER_COUNTER),)  # noqa: E731
        threshold = int(p * STEPS + 0.5)
        launch = rows.on(dropout_kernel, traced)[grid]
        launch(x, out, n, seed, threshold, scale, PER_COUNTER=PER_COUNTER)
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
    return dropout_forward(x, p=p, seed=seed, traced=True)


class Dropout(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x, p, seed):
        """y from x."""
        # BEGIN TODO 5: the result, and what the gradient needs instead of a mask (about 2 lines)
        ctx.p, ctx.seed = p, seed
        return dropout_op(x, p, seed)
        # END TODO 5

    @staticmethod
    def backward(ctx, dy):
        """dx from dy, and None for p and seed."""
        # BEGIN TODO 6: the gradient (about 1 line)
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None
        # END TODO 6


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, for use under torch.compile, too; x itself where not `training`."""
    # BEGIN TODO 7: dropout while training, and nothing of it in evaluation (about 1 line)
    return Dropout.apply(x, p, seed) if training else x
    # END TODO 7
