# labs/lab4_production_slice/dropout.py | right | Unusual: no autotuner; a program has two chunks of 512 counters in a loop unrolled by tl.static_range, numbers come from a helper with join and reshape (another order of the four numbers than usual), and the condition is turned round (`numbers < lowest` drops).
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

COUNTERS = 512  # that a program draws at once
PARTS = 2  # how often it does


@triton.jit
def four_numbers(seed, counters, COUNTERS: tl.constexpr):
    """Return 4 * COUNTERS uniform numbers; those of counters[i] stand at 4 * i to 4 * i + 3."""
    a, b, c, d = tl.rand4x(seed, counters)
    return tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), (4 * COUNTERS,))


@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, COUNTERS: tl.constexpr, PARTS: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    x and y are n contiguous elements of one dtype. Program k has PARTS times COUNTERS counters of the
    generator, and four elements for each counter; the loop is unrolled.
    """
    lowest = tl.cast(p, tl.float32)
    factor = tl.cast(scale, tl.float32)
    for part in tl.static_range(PARTS):
        chunk = tl.program_id(axis=0) * PARTS + part
        numbers = four_numbers(seed, chunk * COUNTERS + tl.arange(0, COUNTERS), COUNTERS)
        elements = chunk.to(tl.int64) * (4 * COUNTERS) + tl.arange(0, 4 * COUNTERS)
        x = tl.load(x_ptr + elements, mask=elements < n, other=0.0).to(tl.float32)
        y = tl.where(numbers < lowest, 0.0, x * factor)
        tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=elements < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    scale = 0.0 if p == 1 else 1.0 / (1.0 - p)
    programs = triton.cdiv(n, 4 * COUNTERS * PARTS)
    on(dropout_kernel, x)[(programs,)](
        x, out, n, p, scale, seed, COUNTERS=COUNTERS, PARTS=PARTS, num_warps=4
    )
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
