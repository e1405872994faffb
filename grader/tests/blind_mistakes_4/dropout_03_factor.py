# labs/lab4_production_slice/dropout.py | wrong everywhere | dropout_kernel: x is divided by 1 - p when it is loaded and multiplied by scale = 1 / (1 - p) again, so what is kept has the factor squared (each p but 0 and 1); the factor belongs there once
"""Dropout without a stored mask."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0)
    counters = pid * BLOCK + tl.arange(0, BLOCK)
    r0, r1, r2, r3 = tl.rand4x(seed, counters)
    u = tl.reshape(tl.join(tl.join(r0, r1), tl.join(r2, r3)), (4 * BLOCK,))
    offs = pid.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32) / (1 - p)
    y = tl.where(u >= p, x * scale, 0.0)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0
    grid = lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)
    on(dropout_kernel, x)[grid](x, out, n, p, scale, seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p, seed):
        ctx.p = p
        ctx.seed = seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    return Dropout.apply(x, p, seed) if training else x
