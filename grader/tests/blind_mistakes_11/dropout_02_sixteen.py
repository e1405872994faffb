# labs/lab4_production_slice/dropout.py | corner | the choice has 8 bits: dropout_forward rounds p to `threshold = round(256 * p)`, so the drop probability is the next multiple of 1/256 while the scale is 1 / (1 - p); the numbers must have enough bits to be compared with p itself. Shows where p is not a multiple of 1/256, most for small p (p = 0.001 drops nothing) and p near 1 (p = 0.999 drops everything).
"""Dropout with one byte of Philox for each element: sixteen elements for a counter."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

EACH = tl.constexpr(16)  # elements that a counter decides


@triton.autotune(
    configs=[triton.Config({"COUNTERS": 64}, num_warps=2), triton.Config({"COUNTERS": 128}, num_warps=4)],
    key=["n"],
)
@triton.jit
def byte_dropout_kernel(source, target, n, threshold, scale, seed, COUNTERS: tl.constexpr):
    """Keep an element where its byte is at least threshold, out of 256."""
    pid = tl.program_id(0)
    w0, w1, w2, w3 = tl.randint4x(seed, pid * COUNTERS + tl.arange(0, COUNTERS))
    words = tl.reshape(tl.join(tl.join(w0, w1), tl.join(w2, w3)), (4 * COUNTERS,))
    shifts = 8 * tl.arange(0, 4)
    octets = (words[:, None] >> shifts[None, :]) & 255
    kept = tl.reshape(octets, (EACH * COUNTERS,)).to(tl.int32) >= threshold

    first = pid.to(tl.int64) * (EACH * COUNTERS)
    index = first + tl.arange(0, EACH * COUNTERS)
    value = tl.load(source + index, mask=index < n, other=0.0).to(tl.float32)
    value = tl.where(kept, value * scale, 0.0)
    tl.store(target + index, value.to(target.dtype.element_ty), mask=index < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p), or 0 with probability p."""
    assert 0 <= p <= 1, f"p is {p}"
    y = torch.empty_like(x) if out is None else out
    threshold = round(256 * p)
    scale = 1 / (1 - p) if p < 1 else 0.0
    size = x.numel()
    launch = on(byte_dropout_kernel, x)[lambda meta: (triton.cdiv(size, 16 * meta["COUNTERS"]),)]
    launch(x, y, size, threshold, scale, seed)
    return y


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """Dropout is linear and its choice depends on the seed alone."""
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """For torch.compile."""
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    """Dropout for autograd."""

    @staticmethod
    def forward(ctx, x, p, seed):
        ctx.p, ctx.seed = p, seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        dx = dropout_op(dy.contiguous(), ctx.p, ctx.seed)
        return dx, None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Dropout while training."""
    return Dropout.apply(x, p, seed) if training else x
