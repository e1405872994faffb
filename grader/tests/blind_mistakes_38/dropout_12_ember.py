# labs/lab4_production_slice/dropout.py | wrong everywhere | In `fraction`, the 32 random bits, an unsigned number below 2^32, are multiplied by 2^-31 (4.656612873077393e-10), so the numbers are uniform in [0, 2) instead of [0, 1). The factor should be 2^-32 (or 2^-31 after the sign bit is folded away, as Triton does). dropout_kernel then drops with probability p / 2 instead of p: the share of kept elements is 1 - p / 2, in every case with 0 < p < 1; p = 0 and p = 1 are right.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": 512}, num_warps=4), triton.Config({"BLOCK": 1024}, num_warps=8)]
STEP = tl.constexpr(4.656612873077393e-10)


@triton.jit
def fraction(bits):
    """Return 32 random bits as a number from 0 up to 1."""
    return bits.to(tl.uint32, bitcast=True).to(tl.float32) * STEP


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the random number of element i is at least p, else 0.

    x and y are n contiguous elements of one dtype. Counter c of the generator decides elements 4 c to 4 c + 3.
    """
    program = tl.program_id(axis=0)
    counters = program * BLOCK + tl.arange(0, BLOCK)
    b0, b1, b2, b3 = tl.randint4x(seed, counters)
    even = tl.join(b0, b2)
    odd = tl.join(b1, b3)
    random = fraction(tl.join(even, odd).reshape(4 * BLOCK))

    elements = program.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    inside = elements < n
    x = tl.load(x_ptr + elements, mask=inside, other=0.0).to(tl.float32)
    kept = random >= tl.cast(p, tl.float32)
    y = tl.where(kept, x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=inside)


def scale_of(p):
    """The factor of what is kept; with p = 1 nothing is."""
    return 1.0 / (1.0 - p) if p < 1.0 else 0.0


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given.
    """
    y = torch.empty_like(x) if out is None else out
    n = x.numel()
    launch = on(dropout_kernel, x)[lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)]
    launch(x, y, n, p, scale_of(p), seed)
    return y


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
        ctx.choice = (p, seed)
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        p, seed = ctx.choice
        return dropout_op(dy.contiguous(), p, seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if training:
        return Dropout.apply(x, p, seed)
    return x
