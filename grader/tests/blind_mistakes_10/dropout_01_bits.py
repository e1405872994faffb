# labs/lab4_production_slice/dropout.py | wrong everywhere | the threshold of the raw integers is int(p * (1 << 31)) in dropout_forward, but tl.randint4x gives all 32 bits and they are compared as unsigned, so only p / 2 of the elements is dropped; must be int(p * (1 << 32)). Shows in the share of kept elements for every p but 0 and 1.
"""Dropout from the raw integers of Philox: the probability becomes an integer once, on the host."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op


@triton.autotune(
    configs=[
        triton.Config({"COUNTERS": 256}, num_warps=4),
        triton.Config({"COUNTERS": 512}, num_warps=4),
        triton.Config({"COUNTERS": 1024}, num_warps=8),
    ],
    key=["n"],
)
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, threshold, scale, seed, COUNTERS: tl.constexpr):
    """Keep the elements whose integer is at least `threshold`; four elements for each counter."""
    pid = tl.program_id(0)
    counters = pid * COUNTERS + tl.arange(0, COUNTERS)
    r0, r1, r2, r3 = tl.randint4x(seed, counters)
    bits = tl.join(tl.join(r0, r1), tl.join(r2, r3)).reshape(4 * COUNTERS)
    keep = (bits.to(tl.uint32, bitcast=True) >= tl.cast(threshold, tl.uint32)) & (scale > 0)  # scale 0: p is 1

    where = pid.to(tl.int64) * (4 * COUNTERS) + tl.arange(0, 4 * COUNTERS)
    inside = where < n
    x = tl.load(x_ptr + where, mask=inside, other=0.0).to(tl.float32)
    y = tl.where(keep, x * scale, 0.0)
    tl.store(y_ptr + where, y.to(y_ptr.dtype.element_ty), mask=inside)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p, else 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if p < 1:
        scale, threshold = 1.0 / (1.0 - p), int(p * (1 << 31))
    else:
        scale, threshold = 0.0, 0
    on(dropout_kernel, x)[lambda meta: (triton.cdiv(n, 4 * meta["COUNTERS"]),)](x, out, n, threshold, scale, seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The same function of dy."""
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """dropout_forward as an operator."""
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x, p, seed):
        """Return y for x."""
        ctx.p, ctx.seed = p, seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy."""
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Dropout while training, x itself otherwise."""
    if not training:
        return x
    return Dropout.apply(x, p, seed)
