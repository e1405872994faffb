# labs/lab4_production_slice/dropout.py | error | tl.store has no argument `other`, so the kernel does not compile; the argument must be removed from the store.
"""Dropout: each counter of Philox decides a row of four neighbouring elements."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [
    triton.Config({"BLOCK": 256}, num_warps=4),
    triton.Config({"BLOCK": 1024}, num_warps=8),
]


@triton.jit
def uniforms(seed, counters, BLOCK: tl.constexpr):
    """(BLOCK, 4) numbers in [0, 1); row c belongs to counter c."""
    a, b, c, d = tl.rand4x(seed, counters)
    return tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), (BLOCK, 4))


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(src_ptr, dst_ptr, n, p, keep_share, seed, BLOCK: tl.constexpr):
    """dst = src / keep_share or 0."""
    counters = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    offs = counters[:, None].to(tl.int64) * 4 + tl.arange(0, 4)[None, :]
    u = uniforms(seed, counters, BLOCK)
    src = tl.load(src_ptr + offs, mask=offs < n, other=0.0).to(tl.float32)
    kept = src / tl.cast(keep_share, tl.float32)
    dst = tl.where(u >= tl.cast(p, tl.float32), kept, 0.0)
    tl.store(dst_ptr + offs, dst.to(dst_ptr.dtype.element_ty), mask=offs < n, other=0.0)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) or 0, decided by `seed` for each element."""
    if out is None:
        out = torch.empty_like(x)
    # No number is 1 or more, so with p = 1 nothing is kept, and the share only must not be 0.
    keep_share = 1.0 - p if p < 1.0 else 1.0
    n = x.numel()

    def grid(meta):
        return (triton.cdiv(n, 4 * meta["BLOCK"]),)

    on(dropout_kernel, x)[grid](x, out, n, p, keep_share, seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The same choice for dy."""
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """dropout_forward for torch.compile."""
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    """dropout_op in both directions."""

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
    """Dropout while training, else x itself."""
    if not training:
        return x
    return Dropout.apply(x, p, seed)
