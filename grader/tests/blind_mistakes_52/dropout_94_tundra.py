# labs/lab4_production_slice/dropout.py | error | In `dropout_kernel`, `step = tl.num_programs(axis=0).to(tl.int64) * BLOCK` makes `first += step` int64 within the while loop, while `first = tl.program_id(axis=0) * BLOCK` is int32 before it: Triton refuses to compile a loop-carried variable that changes its type (CompilationError) in all cases on a GPU or when compiled; the interpreter runs it. It should be `tl.num_programs(axis=0) * BLOCK`, without the cast.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]
PROGRAMS = 4224  # thirty-two for each SM of an H200


@triton.jit
def numbers_of(seed, counters, BLOCK: tl.constexpr):
    """Return four random numbers for each counter, those of one counter next to each other."""
    a, b, c, d = tl.rand4x(seed, counters)
    return tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), (4 * BLOCK,))


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, n_counters, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    x and y are n contiguous elements of one dtype; the numbers are uniform in [0, 1). Counter c of the
    generator decides elements 4 c to 4 c + 3. A program takes BLOCK counters at a time, and goes on behind
    those of all other programs until none is left.
    """
    threshold = tl.cast(p, tl.float32)
    factor = tl.cast(scale, tl.float32)
    first = tl.program_id(axis=0) * BLOCK
    step = tl.num_programs(axis=0).to(tl.int64) * BLOCK
    while first < n_counters:
        random = numbers_of(seed, first + tl.arange(0, BLOCK), BLOCK)
        elements = first.to(tl.int64) * 4 + tl.arange(0, 4 * BLOCK)
        x = tl.load(x_ptr + elements, mask=elements < n, other=0.0).to(tl.float32)
        y = tl.where(random >= threshold, x * factor, 0.0)
        tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=elements < n)
        first += step


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    n_counters = triton.cdiv(n, 4)
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    grid = lambda meta: (min(triton.cdiv(n_counters, meta["BLOCK"]), PROGRAMS),)
    on(dropout_kernel, x)[grid](x, out, n, n_counters, p, scale, seed)
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
