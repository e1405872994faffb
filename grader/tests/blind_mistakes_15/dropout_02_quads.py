# labs/lab4_production_slice/dropout.py | right | right
"""Dropout that stores no mask. A counter of Philox is a row of a tile, its four numbers are the columns."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

QUADS = 512  # counters of one program


@triton.jit
def drop_quads(source, target, n, p, factor, seed, QUADS: tl.constexpr):
    pid = tl.program_id(axis=0)
    quad = tl.arange(0, QUADS)
    r0, r1, r2, r3 = tl.rand4x(seed, pid * QUADS + quad)
    numbers = tl.reshape(tl.join(tl.join(r0, r1), tl.join(r2, r3)), (QUADS, 4))

    # element 4 c + k lies in row c, column k
    first = pid.to(tl.int64) * QUADS
    element = (first + quad)[:, None] * 4 + tl.arange(0, 4)[None, :]
    real = element < n
    value = tl.load(source + element, mask=real, other=0.0).to(tl.float32)
    value = tl.where(numbers < p, 0.0, value * factor)
    tl.store(target + element, value.to(target.dtype.element_ty), mask=real)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """Keep each element with probability 1 - p and divide it by that, else 0; contiguous x of any shape."""
    if out is None:
        out = torch.empty_like(x)
    kept = 1.0 - p
    factor = 1.0 / kept if kept > 0 else 0.0
    n = x.numel()
    if n > 0:
        programs = triton.cdiv(triton.cdiv(n, 4), QUADS)
        on(drop_quads, x)[(programs,)](x, out, n, p, factor, seed, QUADS=QUADS)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p, seed):
        ctx.seed = seed
        ctx.p = p
        y = dropout_op(x, p, seed)
        return y

    @staticmethod
    def backward(ctx, dy):
        dx = None
        if ctx.needs_input_grad[0]:
            dx = dropout_op(dy.contiguous(), ctx.p, ctx.seed)
        return dx, None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    if not training:
        return x
    return Dropout.apply(x, p, seed)
