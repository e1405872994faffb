# labs/lab4_production_slice/dropout.py | right | at most 2048 programs, each walks over the chunks with a grid stride; two-dimensional tiles of counters by four, and p = 1 by a comparison in the kernel
"""Dropout with a fixed number of programs. A chunk is COUNTERS counters, so a tile of COUNTERS x 4 elements."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

PROGRAMS = 2048


@triton.autotune(
    configs=[triton.Config({"COUNTERS": c}, num_warps=w) for c in (256, 512) for w in (2, 4)],
    key=["n"],
)
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, COUNTERS: tl.constexpr):
    """Element 4 c + j of the tensor belongs to number j of counter c, whatever COUNTERS is."""
    chunks = tl.cdiv(n, 4 * COUNTERS)
    p = tl.cast(p, tl.float32)
    for chunk in range(tl.program_id(axis=0), chunks, tl.num_programs(axis=0)):
        counters = tl.cast(chunk, tl.int32) * COUNTERS + tl.arange(0, COUNTERS)
        r0, r1, r2, r3 = tl.rand4x(seed, counters)
        # join(join(a, c), join(b, d)) has a, b, c, d along its last two axes, read row by row
        numbers = tl.reshape(tl.join(tl.join(r0, r2), tl.join(r1, r3)), (COUNTERS, 4))
        where = counters.to(tl.int64)[:, None] * 4 + tl.arange(0, 4)[None, :]
        inside = where < n
        x = tl.load(x_ptr + where, mask=inside, other=0.0).to(tl.float32)
        y = tl.where(numbers < p, 0.0, x * scale)
        tl.store(y_ptr + where, y.to(y_ptr.dtype.element_ty), mask=inside)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p), or 0 with probability p."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    # p = 1: every number is below 1, so the factor is never used
    scale = 1.0 / (1.0 - p) if p != 1 else 1.0

    def grid(meta):
        return (min(PROGRAMS, triton.cdiv(n, 4 * meta["COUNTERS"])),)

    on(dropout_kernel, x)[grid](x, out, n, p, scale, seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """Dropout of dy, with the same seed."""
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """dropout_forward for torch.compile."""
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    """Forward and backward are one operator."""

    @staticmethod
    def forward(ctx, x, p, seed):
        """y."""
        ctx.p, ctx.seed = p, seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """dx."""
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """x itself in evaluation."""
    if not training:
        return x
    return Dropout.apply(x, p, seed)
