"""EXPECT PASS from dropout_forward and dropout: tuned for an H200.

The ideas beyond the solution, and what each saves:
* Philox gives 128 random bits for a counter. An element needs 16 of them, so that a counter serves 8 elements
  instead of 4: half of the random numbers are computed.
* p is rounded to a multiple of 1 / 65536, and compared as a whole number: no random number is converted to a
  floating-point one.
* A thread's 8 elements lie side by side: in 16 bits one load and one store of 16 bytes, the widest that there
  are.
* The programs are small, 4 warps with 8 or 16 elements a thread, so that many are at work at once: while some
  draw numbers, others wait for memory.
"""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

PER_COUNTER = 8  # elements for each counter of the generator
STEPS = 65536  # p is rounded to a multiple of 1 / STEPS
CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (128, 256)]


@triton.jit
def random_halves(seed, counters, PER_COUNTER: tl.constexpr):
    """Return PER_COUNTER whole numbers from 0 to 65535 for each counter, those of a counter side by side."""
    a, b, c, d = tl.randint4x(seed, counters)
    words = tl.join(tl.join(a, b), tl.join(c, d)).to(tl.uint32, bitcast=True)
    halves = tl.join(words & 0xFFFF, words >> 16)
    return tl.reshape(halves, (counters.shape[0] * PER_COUNTER,)).to(tl.int32)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, seed, threshold, scale, BLOCK: tl.constexpr, PER_COUNTER: tl.constexpr):
    """y[i] = x[i] * scale where the i-th number of the stream of `seed` is at least threshold, else 0.

    x and y are n contiguous elements. Program k has BLOCK counters, and PER_COUNTER elements for each.
    """
    program = tl.program_id(axis=0)
    random = random_halves(seed, program * BLOCK + tl.arange(0, BLOCK), PER_COUNTER)
    offs = program.to(tl.int64) * BLOCK * PER_COUNTER + tl.arange(0, BLOCK * PER_COUNTER)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    y = tl.where(random >= threshold, x * scale, 0.0)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=offs < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    if n > 0:
        # With p = 1 nothing is kept, and no number reaches the threshold.
        scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
        threshold = int(p * STEPS + 0.5)
        grid = lambda meta: (triton.cdiv(n, meta["BLOCK"] * PER_COUNTER),)  # noqa: E731
        launch = on(dropout_kernel, x)[grid]
        launch(x, out, n, seed, threshold, scale, PER_COUNTER=PER_COUNTER)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient of dropout: dy / (1 - p) where the forward pass of this seed kept x, else 0."""
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::tuned_dropout", mutates_args=())
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
