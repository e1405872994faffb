# labs/lab4_production_slice/dropout.py | contract | With training=False dropout runs the operator with rate 0 and returns a new tensor with the values of x. It should return x itself, without the operator.
"""Dropout without a stored mask, with a limited number of programs."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]
MOST_PROGRAMS = 2048


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, groups, p, scale, seed, BLOCK: tl.constexpr):
    """Element 4 c + k belongs to counter c; there are `groups` counters, and a program jumps through them."""
    begin = tl.program_id(axis=0) * BLOCK
    step = tl.num_programs(axis=0) * BLOCK
    for first in range(begin, groups, step):
        counters = first + tl.arange(0, BLOCK)
        r0, r1, r2, r3 = tl.rand4x(seed, counters)
        random = tl.reshape(tl.join(tl.join(r0, r1), tl.join(r2, r3)), (BLOCK, 4))
        places = counters.to(tl.int64)[:, None] * 4 + tl.arange(0, 4)[None, :]
        mask = places < n
        x = tl.load(x_ptr + places, mask=mask, other=0.0)
        kept = (x.to(tl.float32) * scale).to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + places, tl.where(random >= p, kept, 0.0), mask=mask)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    groups = triton.cdiv(n, 4)
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0
    grid = lambda meta: (min(MOST_PROGRAMS, triton.cdiv(groups, meta["BLOCK"])),)
    on(dropout_kernel, x)[grid](x, out, n, groups, p, scale, seed)
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
    """Differentiable dropout_forward, also under torch.compile."""
    rate = p if training else 0.0
    return Dropout.apply(x, rate, seed)
