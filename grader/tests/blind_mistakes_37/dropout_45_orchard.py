# labs/lab4_production_slice/dropout.py | contract | dropout_forward with dropout_kernel: share, factor, seed and replay are right, but the choice depends on the dtype. The four numbers of counter `counter` go to the elements first + lane, first + BLOCK + lane, first + 2 * BLOCK + lane and first + 3 * BLOCK + lane of a program, so which number decides an element depends on BLOCK, and dropout_forward takes BLOCK = BYTES // 4 // x.element_size(): 512 for fp32, 1024 for fp16 and bf16. From element 512 on, the same seed and p keep other elements in fp32 than in fp16 or bf16 (n > 512 and 0 < p < 1; fp16 and bf16 agree with each other). The README wants the same choice for every dtype and config, and counter c to decide elements 4 c to 4 c + 3: the four numbers should be joined so that they lie side by side (or at 4 * counter + 0, 1, 2, 3).
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import load, on, store
from torch.library import triton_op

BYTES = 8192  # of x that a program loads


@triton.jit
def settle(x_ptr, y_ptr, where, n, number, p, scale):
    """Keep and scale the elements `where` whose number is at least p; the others become 0."""
    x = load(x_ptr, where, n)
    store(y_ptr, where, n, tl.where(number >= p, x * scale, 0.0))


@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the random number of element i is at least p, else 0.

    x and y are n contiguous elements of one dtype; the numbers are uniform in [0, 1). A program has BLOCK
    counters of the generator, and each of them gives four numbers.
    """
    program = tl.program_id(axis=0)
    lane = tl.arange(0, BLOCK)
    counter = program * BLOCK + lane
    one, two, three, four = tl.rand4x(seed, counter)

    # torch.compile hands over fp64 for both.
    p = tl.cast(p, tl.float32)
    scale = tl.cast(scale, tl.float32)
    first = program.to(tl.int64) * (4 * BLOCK)
    settle(x_ptr, y_ptr, first + lane, n, one, p, scale)
    settle(x_ptr, y_ptr, first + BLOCK + lane, n, two, p, scale)
    settle(x_ptr, y_ptr, first + 2 * BLOCK + lane, n, three, p, scale)
    settle(x_ptr, y_ptr, first + 3 * BLOCK + lane, n, four, p, scale)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    counters = BYTES // 4 // x.element_size()
    programs = triton.cdiv(n, 4 * counters)
    on(dropout_kernel, x)[(programs,)](x, out, n, p, scale, seed, BLOCK=counters)
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
