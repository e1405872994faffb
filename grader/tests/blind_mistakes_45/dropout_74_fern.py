# labs/lab4_production_slice/dropout.py | corner | `block = THREADS * (16 // x.element_size())` in `dropout_forward`: the block depends on the dtype, and as the four numbers of a counter go to elements that lie a block apart (`elements + BLOCK` and so on in `dropout_kernel`), so does the choice. The block should be the same for every dtype (or counter c should decide elements 4 c to 4 c + 3). Shows where fp32 and fp16 or bf16 are compared for one seed ("the same choice for every dtype"); each dtype for itself is right.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

THREADS = 128  # of a program; each loads 16 bytes at a time


@triton.jit
def keep_or_drop(x_ptr, y_ptr, elements, n, random, p, scale):
    """Store x * scale at the elements whose random number is at least p, and 0 at the others."""
    inside = elements < n
    x = tl.load(x_ptr + elements, mask=inside, other=0.0).to(tl.float32)
    y = tl.where(random >= p, x * scale, 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the random number of element i is at least p, else 0.

    Program k has BLOCK counters of the generator, from k * BLOCK on, and four blocks of BLOCK elements, one
    for each of the four numbers of a counter.
    """
    program = tl.program_id(axis=0)
    lanes = tl.arange(0, BLOCK)
    p = tl.cast(p, tl.float32)
    scale = tl.cast(scale, tl.float32)
    first, second, third, fourth = tl.rand4x(seed, program * BLOCK + lanes)
    elements = program.to(tl.int64) * (4 * BLOCK) + lanes
    keep_or_drop(x_ptr, y_ptr, elements, n, first, p, scale)
    keep_or_drop(x_ptr, y_ptr, elements + BLOCK, n, second, p, scale)
    keep_or_drop(x_ptr, y_ptr, elements + 2 * BLOCK, n, third, p, scale)
    keep_or_drop(x_ptr, y_ptr, elements + 3 * BLOCK, n, fourth, p, scale)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    block = THREADS * (16 // x.element_size())
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    grid = (triton.cdiv(n, 4 * block),)
    on(dropout_kernel, x)[grid](x, out, n, p, scale, seed, BLOCK=block, num_warps=THREADS // 32)
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
