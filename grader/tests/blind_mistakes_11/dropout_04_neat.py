# labs/lab4_production_slice/dropout.py | error | `span` calls tl.arange(first, first + SIZE) with a first that comes from program_id; both ends of tl.arange must be constexpr, so the kernel does not compile: it must be first + tl.arange(0, SIZE). Shows in every call.
"""Dropout: the numbers of the generator are counted over the whole tensor."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (512, 1024) for warps in (4, 8)]


@triton.jit
def span(number, SIZE: tl.constexpr):
    """The SIZE whole numbers that belong to program `number`."""
    first = number * SIZE
    return tl.arange(first, first + SIZE)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """Counters from span(program, BLOCK), elements from span(program, 4 * BLOCK)."""
    program = tl.program_id(axis=0)
    a, b, c, d = tl.rand4x(seed, span(program, BLOCK))
    ab = tl.join(a, b)
    cd = tl.join(c, d)
    random = tl.reshape(tl.join(ab, cd), (4 * BLOCK,))
    elements = span(program.to(tl.int64), 4 * BLOCK)
    x = tl.load(x_ptr + elements, mask=elements < n, other=0.0).to(tl.float32)
    y = tl.where(random < p, 0.0, x * scale)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=elements < n)


def scale_of(p: float) -> float:
    """The factor of what is kept."""
    if p == 1:
        return 0.0
    return 1.0 / (1.0 - p)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """Dropout of a contiguous tensor."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    on(dropout_kernel, x)[lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)](x, out, n, p, scale_of(p), seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient has the same choice and the same factor."""
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """Both directions."""
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    """dropout_op with dropout_op as its gradient."""

    @staticmethod
    def forward(ctx, x, p, seed):
        ctx.settings = (p, seed)
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        p, seed = ctx.settings
        return dropout_op(dy.contiguous(), p, seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Only in training."""
    return Dropout.apply(x, p, seed) if training else x
