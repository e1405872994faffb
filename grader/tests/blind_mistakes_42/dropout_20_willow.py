# labs/lab4_production_slice/dropout.py | two mistakes | (1) In `dropout_kernel`, `tl.rand4x(seed + program, tl.arange(0, BLOCK))` adds the program to the seed in place of the counters; it should be `tl.rand4x(seed, program * BLOCK + tl.arange(0, BLOCK))`. Seed + 1 then gives the choice of seed, moved by 4096 elements, against "neighbouring seeds give different choices"; it shows where n is more than 4096, as with 2^14 elements for seeds 40 and 41. (2) In `dropout_forward`, `programs = triton.cdiv(n // 4, BLOCK)` leaves out the last, partial counter where n // 4 is a multiple of BLOCK; it should be `triton.cdiv(n, 4 * BLOCK)`. For n = 1 to 3 nothing is launched, and for n = 4099 the last 3 elements are never written.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

BLOCK = 1024  # counters of the generator in a program, each for four elements


@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the random number of element i is at least p, else 0.

    x and y are n contiguous elements of one dtype; the numbers are uniform in [0, 1). A program has four
    elements, next to each other, for each of its BLOCK counters.
    """
    program = tl.program_id(axis=0)
    a, b, c, d = tl.rand4x(seed + program, tl.arange(0, BLOCK))
    pairs = tl.join(tl.join(a, c), tl.join(b, d))
    random = tl.reshape(pairs, (4 * BLOCK,))
    elements = program.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    x = tl.load(x_ptr + elements, mask=elements < n, other=0.0).to(tl.float32)
    kept = random >= tl.cast(p, tl.float32)
    y = tl.where(kept, x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=elements < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    programs = triton.cdiv(n // 4, BLOCK)
    on(dropout_kernel, x)[(programs,)](x, out, n, p, scale, seed, BLOCK=BLOCK, num_warps=4)
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
