"""EXPECT PASS from dropout_forward and dropout: tl.interleave joins the numbers of a pair."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

PER_COUNTER = tl.constexpr(4)
CONFIGS = [triton.Config({"BLOCK": 2**log}, num_warps=warps) for log, warps in ((8, 4), (9, 4), (10, 8))]


@triton.jit
def uniform(seed, counters):
    """Four numbers from [0, 1) for each counter, in the order of the elements."""
    a, b, c, d = tl.rand4x(seed, counters)
    return tl.interleave(tl.interleave(a, c), tl.interleave(b, d))


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit(do_not_specialize=["seed"])
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    program = tl.program_id(axis=0)
    random = uniform(seed, program * BLOCK + tl.arange(0, BLOCK))
    width: tl.constexpr = PER_COUNTER * BLOCK
    elements = program.to(tl.int64) * width + tl.arange(0, width)
    exists = elements < n
    x = tl.load(x_ptr + elements, mask=exists, other=0.0).to(tl.float32)
    y = tl.where(random >= tl.cast(p, tl.float32), x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=exists)


def dropout_forward(x: torch.Tensor, *, p: float, seed: int, out: torch.Tensor | None = None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p, else 0."""
    if not 0 <= p <= 1:
        raise ValueError(f"p is a probability, not {p}")
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    if n == 0:
        return out
    # No number is >= 1, so with p = 1 nothing is kept; the scale only has to be finite.
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0
    grid = lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)  # noqa: E731
    on(dropout_kernel, x)[grid](x, out, n, p, scale, seed)
    return out


def dropout_backward(
    dy: torch.Tensor, *, p: float, seed: int, out: torch.Tensor | None = None
) -> torch.Tensor:
    """The same choice and the same factor, for dy."""
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p, seed):
        ctx.p, ctx.seed = p, seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x: torch.Tensor, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Dropout while training; x itself otherwise."""
    if not training:
        return x
    return Dropout.apply(x, p, seed)
