# labs/lab4_production_slice/dropout.py | corner | In dropout_kernel the counters of a step begin at (program + step) * BLOCK instead of (program * STEPS + step) * BLOCK. Tensors of more than one program (more than 4 * 4 * 256 = 4096 elements) repeat their random numbers: step s of program k has the choice of step s - 1 of program k + 1; smaller tensors are right.
"""Dropout by Philox: a program goes over four pieces of the tensor, one behind the other."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

BLOCK = 256  # counters of a step, each for four elements
STEPS = 4  # steps of a program


@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr, STEPS: tl.constexpr):
    program = tl.program_id(axis=0)
    p = tl.cast(p, tl.float32)
    scale = tl.cast(scale, tl.float32)
    for step in range(0, STEPS):
        piece = program.to(tl.int64) * STEPS + step
        counters = (program + step) * BLOCK + tl.arange(0, BLOCK)
        a, b, c, d = tl.rand4x(seed, counters)
        random = tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), (4 * BLOCK,))
        elements = piece * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
        inside = elements < n
        x = tl.load(x_ptr + elements, mask=inside, other=0.0).to(tl.float32)
        y = tl.where(random >= p, x * scale, 0.0)
        tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=inside)


def factor(p):
    """What a kept element is multiplied by."""
    if p == 1:
        return 0.0
    return 1.0 / (1.0 - p)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    if n:
        grid = (triton.cdiv(n, 4 * BLOCK * STEPS),)
        on(dropout_kernel, x)[grid](x, out, n, p, factor(p), seed, BLOCK=BLOCK, STEPS=STEPS)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """dropout is linear in x with a fixed choice, so its gradient is dropout of dy."""
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """dropout_forward as an operator that torch.compile can look into."""
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x, p, seed):
        ctx.choice = (p, seed)
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        p, seed = ctx.choice
        dx = dropout_op(dy.contiguous(), p, seed)
        return dx, None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward; in evaluation x itself."""
    if not training:
        return x
    return Dropout.apply(x, p, seed)
