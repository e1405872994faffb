# labs/lab4_production_slice/dropout.py | contract | The counters of a program begin at program * 4 * BLOCK, like its elements, and should begin at program * BLOCK: the share, the factor and the gradient are right, but the choice depends on BLOCK, so one seed gives different choices for the two configs.
"""Dropout, forward and backward by one kernel."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": b}, num_warps=4) for b in (512, 1024)]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    SPAN: tl.constexpr = 4 * BLOCK  # elements of a program
    program = tl.program_id(axis=0)
    a, b, c, d = tl.rand4x(seed, program * SPAN + tl.arange(0, BLOCK))
    random = tl.join(tl.join(a, b), tl.join(c, d)).reshape(SPAN)
    i = program.to(tl.int64) * SPAN + tl.arange(0, SPAN)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(y_ptr + i, tl.where(random >= p, x * scale, 0.0).to(y_ptr.dtype.element_ty), mask=i < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) or 0."""
    if out is None:
        out = torch.empty_like(x)
    scale = 1 / (1 - p) if p != 1 else 0.0
    launch = on(dropout_kernel, x)[lambda meta: (triton.cdiv(x.numel(), 4 * meta["BLOCK"]),)]
    launch(x, out, x.numel(), p, scale, seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """dy / (1 - p) or 0."""
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """For torch.compile."""
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    """For autograd."""

    @staticmethod
    def forward(ctx, x, p, seed):
        ctx.p = p
        ctx.seed = seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Dropout while training."""
    return Dropout.apply(x, p, seed) if training else x
