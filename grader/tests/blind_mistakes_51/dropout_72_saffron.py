# labs/lab4_production_slice/dropout.py | wrong everywhere | In `dropout_forward`, `keep = 1.0 / (1.0 - p) if p < 1.0 else 1.0` is the factor, while the kernel divides by it (`x / keep`); it should be `1.0 - p`. Kept elements are x * (1 - p) for every 0 < p < 1, in y and in dx; only p = 0 and p = 1 are right.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [
    triton.Config({"BLOCK": block, "PARTS": parts}, num_warps=4)
    for block, parts in ((512, 1), (512, 2), (256, 4))
]


@triton.jit
def uniform(seed, counters):
    """Four numbers of [0, 1) for each counter, those of a counter next to each other."""
    a, b, c, d = tl.rand4x(seed, counters)
    return tl.interleave(tl.interleave(a, c), tl.interleave(b, d))


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, keep, seed, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    """y[i] = x[i] / keep where the i-th random number of `seed` is at least p, else 0.

    A program has PARTS times BLOCK counters of the generator, and four elements for each counter.
    """
    first = tl.program_id(axis=0).to(tl.int64) * (BLOCK * PARTS)
    p = tl.cast(p, tl.float32)
    keep = tl.cast(keep, tl.float32)
    for part in tl.static_range(PARTS):
        counter = first + part * BLOCK
        random = uniform(seed, counter + tl.arange(0, BLOCK))
        elements = counter * 4 + tl.arange(0, 4 * BLOCK)
        x = tl.load(x_ptr + elements, mask=elements < n, other=0.0).to(tl.float32)
        y = tl.where(random >= p, x / keep, 0.0)
        tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=elements < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    # With p = 1 every number is below p, and any divisor but 0 will do.
    keep = 1.0 / (1.0 - p) if p < 1.0 else 1.0
    grid = lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"] * meta["PARTS"]),)  # noqa: E731
    on(dropout_kernel, x)[grid](x, out, n, p, keep, seed)
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
        ctx.p, ctx.seed = p, seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
