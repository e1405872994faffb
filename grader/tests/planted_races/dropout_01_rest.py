# labs/lab4_production_slice/dropout.py | race | store in line 27 to y, called in line 43: each program of the launch also does the elements behind the last whole block, so all programs store y[n // (4 * BLOCK) * 4 * BLOCK : n], for n > 8 * BLOCK (1024 or 2048 by the config) and n no multiple of 4 * BLOCK; same bits, values right
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (128, 256)]


@triton.jit
def draw(seed, first, BLOCK: tl.constexpr):
    """Random numbers of BLOCK counters from `first` on, four for each, those of a counter side by side."""
    a, b, c, d = tl.rand4x(seed, (first + tl.arange(0, BLOCK)).to(tl.int32))
    return tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), (4 * BLOCK,))


@triton.jit
def drop(x_ptr, y_ptr, first, end, p, scale, seed, BLOCK: tl.constexpr):
    """Dropout for the elements of BLOCK counters from `first` on, as far as they lie below `end`."""
    random = draw(seed, first, BLOCK)
    elements = tl.arange(0, 4 * BLOCK).to(tl.int64) + 4 * first
    x = tl.load(x_ptr + elements, mask=elements < end, other=0.0).to(tl.float32)
    y = tl.where(random >= tl.cast(p, tl.float32), x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=elements < end)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    x and y are n contiguous elements of one dtype; the numbers are uniform in [0, 1). Program k has BLOCK
    counters of the generator, from k * BLOCK on, and four elements for each counter.
    """
    program = tl.program_id(axis=0).to(tl.int64)
    whole = n // (4 * BLOCK)
    drop(x_ptr, y_ptr, program * BLOCK, whole * (4 * BLOCK), p, scale, seed, BLOCK)
    # What is left behind the whole blocks is less than a block.
    if n % (4 * BLOCK) != 0:
        drop(x_ptr, y_ptr, whole * BLOCK, n, p, scale, seed, BLOCK)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 0.0 if p == 1 else 1 / (1 - p)
    on(dropout_kernel, x)[lambda meta: (max(n // (4 * meta["BLOCK"]), 1),)](x, out, n, p, scale, seed)
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
