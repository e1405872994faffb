# labs/lab4_production_slice/dropout.py | corner | In dropout_forward, counters = n // 4 rounds down, so up to three elements at the end stay unwritten where n is below 4 or up to 3 more than a multiple of 4 * BLOCK. It should be triton.cdiv(n, 4).
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

PER_COUNTER = 4  # numbers that one counter of Philox gives
CONFIGS = [triton.Config({"BLOCK": 512}, num_warps=4), triton.Config({"BLOCK": 1024}, num_warps=4)]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    Program k has BLOCK counters of the generator, from k * BLOCK on, and four elements for each counter.
    """
    WIDTH: tl.constexpr = 4 * BLOCK
    program = tl.program_id(axis=0)
    counter = program * BLOCK + tl.arange(0, BLOCK)
    u0, u1, u2, u3 = tl.rand4x(seed, counter)
    left = tl.join(u0, u1)
    right = tl.join(u2, u3)
    random = tl.reshape(tl.join(left, right), (WIDTH,))

    offs = program.to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    scaled = x.to(tl.float32) * scale
    y = tl.where(random < p, 0.0, scaled)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=offs < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    counters = n // PER_COUNTER
    scale = 0.0 if p >= 1.0 else 1.0 / (1.0 - p)

    on(dropout_kernel, x)[lambda meta: (triton.cdiv(counters, meta["BLOCK"]),)](x, out, n, p, scale, seed)
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
        ctx.seed = seed
        ctx.p = p
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        grad = dy.contiguous()
        return dropout_op(grad, ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if training:
        return Dropout.apply(x, p, seed)
    return x
