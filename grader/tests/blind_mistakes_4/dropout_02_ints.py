# labs/lab4_production_slice/dropout.py | honest | randint4x and 24 bits of each integer instead of rand4x, put in order by tl.interleave
"""Dropout by Philox integers: 24 bits of each are the uniform number."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": 512}, num_warps=4), triton.Config({"BLOCK": 1024}, num_warps=8)]


@triton.jit
def uniform(bits):
    """Numbers in [0, 1) from the upper 24 bits of each integer: exact in fp32."""
    return (bits.to(tl.uint32, bitcast=True) >> 8).to(tl.float32) * (1.0 / 16777216.0)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0).to(tl.int64)
    i0, i1, i2, i3 = tl.randint4x(seed, pid * BLOCK + tl.arange(0, BLOCK))
    u = tl.interleave(tl.interleave(uniform(i0), uniform(i1)), tl.interleave(uniform(i2), uniform(i3)))
    where = pid * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    valid = where < n
    x = tl.load(x_ptr + where, mask=valid, other=0.0)
    factor = tl.where(u >= p, scale, 0.0)
    y = tl.where(u >= p, x.to(tl.float32) * factor, 0.0)
    tl.store(y_ptr + where, y.to(x.dtype), mask=valid)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    y = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 0.0
    if p < 1.0:
        scale = 1.0 / (1.0 - p)
    on(dropout_kernel, x)[lambda meta: (triton.cdiv(n, meta["BLOCK"] * 4),)](x, y, n, p, scale, seed)
    return y


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p, seed):
        ctx.p, ctx.seed = p, seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    if training:
        return Dropout.apply(x, p, seed)
    return x
